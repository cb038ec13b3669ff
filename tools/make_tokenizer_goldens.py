#!/usr/bin/env python3
"""Makes tests/fixtures/tokenizers: small tokenizers trained on the README, and the ids that the packages give with them.

    PYTHON tools/make_tokenizer_goldens.py

PYTHON has the packages `tokenizers` and `sentencepiece`: tools/tokenizer_diff.py makes such an environment in build/venv.
"""

import base64
import json
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/fixtures/tokenizers"
TEXTS = [
    "", " ", "   ", "a", "the train", " the train ", "Octet trains models in 8-bit floating point.", "line\nbreak\r\n\n  indented",
    "don't you'll I'M we'Re it's", "1234567890 3.14159", "naïve café — “quotes”", "日本語 текст ελληνικά", "👍🏽 emoji 👩‍💻",
    "tabs\t\tand  double  spaces", "<s>text</s> <|end|>", "a <|end|> b<|end|>c", "e\u0301 decomposed \uac00\u11a8", "\u00a0nbsp\u2003em",
    "x" * 100, "ab" * 50, "#include <cstdint>\nint main() { return 0; }\n", "▁mark ▁▁", "'ſ long s", "١٢٣ ½ Ⅻ",
]


def byte_level(words, normalizer=None, vocab=420):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = words
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
                                  special_tokens=[AddedToken("<|end|>", special=True, normalized=False)])
    tokenizer.train([str(ROOT / "README.md")], trainer)
    return tokenizer


def cl100k(digits):
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits +
               r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    return pattern


def split(pattern, behavior="isolated", invert=False):
    from tokenizers import Regex
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior, invert),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama_like(spaces):
    """BPE of characters with bytes to fall back on."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if spaces == "normalizer":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=spaces == "split")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=560, show_progress=False, special_tokens=specials)
    tokenizer.train([str(ROOT / "README.md")], trainer)
    saved = json.loads(tokenizer.to_str())
    saved["added_tokens"] = [dict(token, special=True, normalized=False) for token in saved["added_tokens"][:3]]
    tokenizer = Tokenizer.from_str(json.dumps(saved))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    return tokenizer


def sentencepiece_model(name, **options):
    sentencepiece.SentencePieceTrainer.train(
        input=str(ROOT / "README.md"), model_prefix=str(OUT / name), minloglevel=2, vocab_size=560, byte_fallback=True,
        split_digits=True, hard_vocab_limit=False, **options)
    (OUT / f"{name}.vocab").unlink()
    return sentencepiece.SentencePieceProcessor(model_file=str(OUT / f"{name}.model"))


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizers = {
        "gpt2": byte_level(gpt2),
        "prefix_space": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
        "nfc": byte_level(gpt2, normalizers.NFC()),
        "nfkd": byte_level(gpt2, normalizers.NFKD()),
        "cl100k": byte_level(split(cl100k(r"\p{N}{1,3}"), "removed", True)),
        "qwen": byte_level(split(cl100k(r"\p{N}"))),
        "other_pattern": byte_level(split(r"\p{Lu}?\p{Ll}+|\p{N}{2}|[^\S\r\n]+|\s", "merged_with_next")),
        "digits": byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])),
        "spaces": byte_level(gpt2),
        "llama": llama_like("normalizer"),
        "metaspace": llama_like("split"),
        "metaspace_whole": llama_like("whole"),
    }
    tokenizers["spaces"].add_tokens([AddedToken(" " * n, normalized=True) for n in (4, 2, 3)])
    tokenizers["spaces"].add_tokens([AddedToken("train", single_word=True), AddedToken("<mask>", lstrip=True, rstrip=True)])
    expected = {}
    texts = TEXTS + ["a <mask> b", "training train", "  \u2003<mask>\n c"]
    for name, tokenizer in tokenizers.items():
        tokenizer.save(str(OUT / f"{name}.json"), pretty=False)
        expected[f"{name}.json"] = [[tokenizer.encode(text, add_special_tokens=special).ids for special in (False, True)]
                                    for text in texts]
    bpe = sentencepiece_model("sp_bpe", model_type="bpe", normalization_rule_name="identity", remove_extra_whitespaces=False)
    unigram = sentencepiece_model("sp_unigram", model_type="unigram", normalization_rule_name="identity")
    for name, model in {"sp_bpe.model": bpe, "sp_unigram.model": unigram}.items():
        expected[name] = [[model.encode(text), [model.bos_id()] + model.encode(text)] for text in texts]
    model = json.loads((OUT / "gpt2.json").read_text())["model"]
    (OUT / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (OUT / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    alphabet = json.loads(json.dumps(model["vocab"]))
    ranks = [(token, rank) for token, rank in alphabet.items() if token != "<|end|>"]
    table = byte_of_character()
    lines = [f"{base64.b64encode(bytes(table[c] for c in token)).decode()} {rank - 1}" for token, rank in
             sorted(ranks, key=lambda pair: pair[1])]
    (OUT / "tiny.tiktoken").write_text("\n".join(lines) + "\n")
    (OUT / "expected.json").write_text(json.dumps({"texts": texts, "ids": expected}, separators=(",", ":")) + "\n")


def byte_of_character():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, after = {chr(byte): byte for byte in printable}, 0x100
    for byte in range(256):
        if byte not in printable:
            table[chr(after)] = byte
            after += 1
    return table


if __name__ == "__main__":
    main()
