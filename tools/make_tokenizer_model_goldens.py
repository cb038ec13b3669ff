#!/usr/bin/env python3
"""Makes tests/fixtures/tokenizer_models: small tokenizer.json files of Unigram, WordLevel and BPE with the forms of published ones, and
what the package `tokenizers` gives with them.

    PYTHON tools/make_tokenizer_model_goldens.py

PYTHON has the packages `tokenizers` and `sentencepiece` (with `protobuf`): the map of characters of a Precompiled normalizer comes from
a model of the latter.
"""

import json
import tempfile
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/fixtures/tokenizer_models"
TEXTS = [
    "", " ", "   ", "a", "the train", " the train ", "Octet trains models in 8-bit floating point.", "line\nbreak\r\n\n  indented",
    "don't you'll I'M we'Re it's", "1234567890 3.14159", "na\u00efve caf\u00e9 \u2014 \u201cquotes\u201d ``x''", "\u65e5\u672c\u8a9e \u0442\u0435\u043a\u0441\u0442 \u03b5\u03bb\u03bb",
    "\U0001f44d\U0001f3fd emoji \U0001f469\u200d\U0001f4bb \U0001f1e9\U0001f1ea\U0001f1e9", "tabs\t\tand  double  spaces", "<s>text</s> <mask>x<mask> a", "<extra_id_0> b<extra_id_1>c", "<unk> and <pad>",
    "e\u0301 decomposed e\u0301\u0301 xe\u0301\u0323 q\u0301 q \uac00\u11a8", "\u00a0nbsp\u2003em\u200bzero", "\uff21\uff22 wide \ufb01ne \u00bd \u2460", "x" * 80, "ab" * 50,
    "#include <cstdint>\nint main() { return 0; }\n", "\u2581mark \u2581\u2581", "snake_case|a-b|c", "The TRAIN trains", "a\x01b\x7fc\x0bd\x0ce\ufeff f", "\u0915\u094d\u0937\u093f \u0e01\u0e33",
]
MAP = [("\uff21", "A"), ("\uff22", "B"), ("\ufb01", "fi"), ("\u00bd", "1/2"), ("\u2460", "1"), ("\u00a0", " "), ("\u2003", " "), ("\u200b", ""),
       ("e\u0301", "\u00e9"), ("q", "Q"), ("q\u0301", "X"), ("\u201c", '"'), ("\u201d", '"'), ("\r", " "), ("\n", " "), ("\t", " ")]


def character_map():
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        spelled = [" ".join(f"{ord(c):X}" for c in text) for pair in MAP for text in pair]
        rules.write_text("".join(f"{a}\t{b}\n" for a, b in zip(spelled[::2], spelled[1::2], strict=True)))
        sentencepiece.SentencePieceTrainer.train(
            input=str(ROOT / "README.md"), model_prefix=f"{folder}/m", minloglevel=2, vocab_size=100, hard_vocab_limit=False,
            model_type="char", normalization_rule_tsv=str(rules))
        model = sentencepiece_model_pb2.ModelProto.FromString((Path(folder) / "m.model").read_bytes())
    return normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)


def trained(model, trainer, normalizer=None, words=None, decoder=None, post=None):
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizer or normalizers.Sequence([])
    tokenizer.pre_tokenizer = words or pre_tokenizers.Sequence([])
    tokenizer.train([str(ROOT / "README.md")], trainer)
    saved = json.loads(tokenizer.to_str())
    for part, given in (("normalizer", normalizer), ("pre_tokenizer", words)):
        if given is None:
            saved[part] = None
    tokenizer = Tokenizer.from_str(json.dumps(saved))
    if decoder is not None:
        tokenizer.decoder = decoder
    if post is not None:
        tokenizer.post_processor = post
    return tokenizer


def unigram(specials, normalizer, words, decoder, post, size=420, **model):
    trainer = trainers.UnigramTrainer(vocab_size=size, show_progress=False, special_tokens=specials, unk_token="<unk>", initial_alphabet=["e", "\u2581"])
    tokenizer = trained(models.Unigram(), trainer, normalizer, words, decoder, post)
    saved = json.loads(tokenizer.to_str())
    saved["model"] |= model
    return Tokenizer.from_str(json.dumps(saved))


def template(single, pair, ids):
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)


def unsplit(tokenizer):
    """Trained by words, and run over whole texts, as published models are."""
    saved = json.loads(tokenizer.to_str())
    saved["pre_tokenizer"]["split"] = False
    return Tokenizer.from_str(json.dumps(saved))


def unigrams(mapped):
    mark = pre_tokenizers.Metaspace("\u2581", prepend_scheme="always")
    decoder = decoders.Metaspace("\u2581", prepend_scheme="always")
    split = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), mark])
    t5 = ["<pad>", "</s>", "<unk>"] + [f"<extra_id_{i}>" for i in range(2)]
    xlmr = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, normalized=True, special=True)]
    lower = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
                                  normalizers.Lowercase(), mapped])
    strip = normalizers.Sequence([normalizers.Strip(left=False, right=True), mapped, normalizers.Replace(Regex(" {2,}"), "\u2581")])
    # The id of <unk> in each list.
    return {
        "t5": unigram(t5, mapped, mark, decoder, template("$A </s>", "$A </s> $B </s>", [("</s>", 1)]), unk_id=2),
        "xlmr": unigram(xlmr, mapped, split, decoder, template("<s> $A </s>", "<s> $A </s> </s> $B </s>", [("<s>", 0), ("</s>", 2)]), unk_id=3),
        "albert": unigram(["<pad>", "<unk>", "[CLS]", "[SEP]"], lower, split, decoder,
                          template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]), unk_id=1),
        "deberta": unsplit(unigram(["[PAD]", "[CLS]", "<unk>"], strip, mark, decoder, None, unk_id=2)),
        "unigram_bytes": unsplit(unigram(["<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)], normalizers.Nmt(), mark,
                                         decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                                            decoders.Strip(" ", 1, 0)]), None, size=700, unk_id=0, byte_fallback=True)),
    }


def others(mapped):
    words = trainers.WordLevelTrainer(vocab_size=300, show_progress=False, special_tokens=["<unk>", "<pad>"])
    ends = trainers.BpeTrainer(vocab_size=420, show_progress=False, special_tokens=["<unk>"], end_of_word_suffix="</w>", limit_alphabet=80)
    inner = trainers.BpeTrainer(vocab_size=420, show_progress=False, special_tokens=["<unk>"], continuing_subword_prefix="##", limit_alphabet=80)
    clip = trainers.BpeTrainer(vocab_size=800, show_progress=False, special_tokens=["<|end|>"], end_of_word_suffix="</w>",
                               initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    plain = trainers.BpeTrainer(vocab_size=420, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    bare = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    delimited = pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit("|"), pre_tokenizers.FixedLength(5)])
    pattern = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"'s|'t|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"), "removed", True), bare])
    made = {
        "word_level": trained(models.WordLevel(unk_token="<unk>"), words, normalizers.Lowercase(), pre_tokenizers.Whitespace()),
        "bpe_suffix": trained(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True), ends, normalizers.Lowercase(),
                              pre_tokenizers.BertPreTokenizer(), decoders.BPEDecoder("</w>")),
        "bpe_prefix": trained(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"), inner, mapped, delimited, decoders.Fuse()),
        "clip": trained(models.BPE(end_of_word_suffix="</w>"), clip, normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()]), pattern,
                        decoders.ByteLevel()),
        "byte_normalizer": trained(models.BPE(), plain, normalizers.ByteLevel(), pre_tokenizers.Split("\u0120", "merged_with_next"), decoders.ByteLevel()),
    }
    saved = json.loads(made["clip"].to_str())  # each byte also as the end of a word
    vocab = saved["model"]["vocab"]
    for letter in pre_tokenizers.ByteLevel.alphabet():
        vocab.setdefault(letter + "</w>", len(vocab))
    made["clip"] = Tokenizer.from_str(json.dumps(saved))
    return made


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    mapped = character_map()
    expected = {}
    for name, tokenizer in (unigrams(mapped) | others(mapped)).items():
        tokenizer.save(str(OUT / f"{name}.json"), pretty=False)
        rows = []
        for text in TEXTS:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            rows.append([ids, tokenizer.encode(text).ids, tokenizer.decode(ids, skip_special_tokens=False)])
        expected[f"{name}.json"] = rows
    (OUT / "expected.json").write_text(json.dumps({"texts": TEXTS, "rows": expected}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
