#!/usr/bin/env python3
"""Makes tests/fixtures/word_pieces: small tokenizers of BERT's kind trained on the README, and what the package gives with them.

    PYTHON tools/make_word_piece_goldens.py DATA

PYTHON has the package `tokenizers`: tools/tokenizer_diff.py makes such an environment in build/venv. DATA is the folder with
tokenizers/ and text/: of its golden texts, whole and in documents of 20 KB, checksums of the ids are kept. For vocab.txt the
folder's tokenizer is put together as transformers' BertTokenizer does.
"""

import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/fixtures/word_pieces"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = [
    "", " ", "a", "the train", " The  TRAIN ", "Octet trains models in 8-bit floating point.", "line\nbreak\r\n\n  indented\ttab",
    "don't you'll I'M we'Re it's", "1234567890 3.14159", "na\u00efve caf\u00e9 \u2014 \u201cquotes\u201d \u00c5ngstr\u00f6m", "\u65e5\u672c\u8a9e \u0442\u0415\u043a\u0441\u0442 \u03b5\u03bb\u039b\u03b7\u03bd\u03b9\u03ba\u03ac \u03a3\u0391\u03a3",
    "\U0001f44d\U0001f3fd emoji \U0001f469\u200d\U0001f4bb", "[CLS] text [SEP] [MASK][MASK] [mask] [UNK]", "e\u0301 decomposed \uac00\u11a8 \u0130stanbul \u01c5 \u1e9e",
    "\u00a0nbsp\u2003em\u3000wide", "x" * 100, "x" * 101, "train" * 25, "a\x00b\x01c\ufffdd\u200be\u00adf\ue000g\x7f\x85h",
    "#include <cstdint>\nint main() { return 0; }\n", "\u0661\u0662\u0663 \u00bd \u216b", "a\u0301\u0323 o\u0327\u0302 \u0915\u094d\u0937\u093f \u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd \u0e01\u0e33", "\U00020000\uf900\u3400x\u2f00",
    "snake_case a+b=c $5 ^`~| x\u20acy \u00a7\u00b6 \u00ab\u00bb\u2026", "Training train trains re-train the Train!", "a <extra> b<extra>c", "##ing ## #",
    "I do not, it 's and n't 've 're . ? ! ' m",
]
PAIRS = [(2, 3), (3, 5), (5, 3), (0, 0), (0, 5), (5, 0), (7, 12), (24, 25)]
LENGTHS = [0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 24]
GOLDEN = ["tokenizers/golden/texts/cpp_docs_100k.txt", "tokenizers/golden/texts/gsm8k_test_qa.txt",
          "tokenizers/golden/texts/tinystories_100k.txt", "tokenizers/golden/texts/wiki_val_100k.txt",
          "text/tinyshakespeare/input.txt", "text/wikitext2/wikitext2_raw_test.hfjoined.txt"]


def trained(normalizer, words, post=None, decoder="##", cleanup=True, max_chars=100, vocab=420):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, words
    trainer = trainers.WordPieceTrainer(vocab_size=vocab, show_progress=False, special_tokens=SPECIAL, limit_alphabet=120,
                                        continuing_subword_prefix=decoder or "##")
    tokenizer.train([str(ROOT / "README.md")], trainer)
    if decoder is not None:
        tokenizer.decoder = decoders.WordPiece(prefix=decoder, cleanup=cleanup)
    if post is not None:
        tokenizer.post_processor = post
    saved = json.loads(tokenizer.to_str())
    saved["model"]["max_input_chars_per_word"] = max_chars
    return Tokenizer.from_str(json.dumps(saved))


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=330, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
                                  special_tokens=["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)])
    tokenizer.train([str(ROOT / "README.md")], trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer


def template():
    return processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                         special_tokens=[("[CLS]", 2), ("[SEP]", 3)])


def tokenizers():
    bert = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made = {
        "uncased": trained(normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), template()),
        "cased": trained(normalizers.BertNormalizer(lowercase=False, handle_chinese_chars=False), pre_tokenizers.BertPreTokenizer(),
                         bert, cleanup=False),
        "accents": trained(normalizers.BertNormalizer(clean_text=False, strip_accents=False), pre_tokenizers.Whitespace(), bert),
        "steps": trained(normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]),
                         pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                                  pre_tokenizers.Punctuation("merged_with_previous")]), decoder="@@", max_chars=9),
        "bare": trained(None, pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()]), decoder=None),
        "odd_template": trained(normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit(), processors.TemplateProcessing(
            single="$A:2 [SEP]:1 [CLS]:3", pair="[MASK]:4 $B:5 $A:6 [SEP]:7", special_tokens=[("[CLS]", 2), ("[SEP]", 3), ("[MASK]", 4)])),
        "roberta": byte_level(),
    }
    made["cased"].add_tokens([AddedToken("<extra>", lstrip=True), AddedToken("Train", single_word=True)])
    made["uncased"].add_tokens([AddedToken("TRAINS", normalized=True)])
    return made


def vocabulary_file(uncased):
    """vocab.txt of `uncased`, and what BertTokenizer makes of it."""
    vocab = sorted((token, i) for token, i in json.loads(uncased.to_str())["model"]["vocab"].items())
    lines = [token for token, _ in sorted(vocab, key=lambda pair: pair[1])]
    (OUT / "vocab.txt").write_text("\n".join(lines) + "\n")
    tokenizer = Tokenizer(models.WordPiece(dict(vocab), unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder, tokenizer.post_processor = decoders.WordPiece(), template()
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def checksum(ids):
    """Of their number and order, below 2^53."""
    value = len(ids)
    for i in ids:
        value = (value * 31 + i + 1) % (2 ** 31 - 1)
    return [len(ids), value]


def documents(text, n_bytes=20_000):
    """Whole lines of at least so many bytes."""
    made, part, size = [], [], 0
    for line in text.splitlines(keepends=True):
        part.append(line)
        size += len(line.encode())
        if size >= n_bytes:
            made.append("".join(part))
            part, size = [], 0
    return made + (["".join(part)] if part else [])


def row_of(encoding):
    return {"ids": encoding.ids, "types": encoding.type_ids, "special": encoding.special_tokens_mask}


def expected(tokenizer, data, lengths):
    tokenizer.no_truncation()
    single = []
    for text in TEXTS:
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        whole = tokenizer.encode(text)
        single.append(row_of(whole) | {"plain": plain, "text": tokenizer.decode(plain, skip_special_tokens=False),
                                       "whole_text": tokenizer.decode(whole.ids, skip_special_tokens=False)})
    golden = {}
    for name in GOLDEN:
        text = (data / name).read_text()
        golden[name] = [checksum(tokenizer.encode(text, add_special_tokens=False).ids),
                        checksum([i for part in documents(text) for i in tokenizer.encode(part, add_special_tokens=False).ids])]
    pairs, cut = [], []
    for length in lengths:
        tokenizer.enable_truncation(length) if length else tokenizer.no_truncation()
        for a, b in PAIRS:
            pairs.append({"length": length, "first": a, "second": b} | row_of(tokenizer.encode(TEXTS[a], TEXTS[b])))
        cut.append({"length": length, "first": 5} | row_of(tokenizer.encode(TEXTS[5])))
    return {"single": single, "golden": golden, "pairs": pairs, "cut": cut}


QUESTION, CONTEXT = "Which scale does a group have?", (
    "The train \u2014 na\u00efve, of course \u2014 trains models. A group of 128 elements has the scale amax/448; caf\u00e9s do not. "
    "Each group's own scale is f32, and the scale of a tensor is one.")
ANSWERS = ["The train", "na\u00efve", "128 elements", "amax/448", "f32", "one.", "caf\u00e9s do not. Each"]


def bytes_of(text, begin, end):
    return [len(text[:begin].encode()), len(text[:end].encode())]


def spans(tokenizer, has_pairs):
    """Where tokens stand, in bytes; and windows of a question with their answers, as transformers' run_qa prepares them."""
    tokenizer.no_truncation()
    places = []
    for text in TEXTS + [CONTEXT]:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        places.append([[i] + bytes_of(text, *offset) for i, offset in zip(encoding.ids, encoding.offsets)])
    windows = []
    for length, stride in ((56, 8), (64, 16), (200, 0)) if has_pairs else ():
        tokenizer.enable_truncation(length, stride=stride, strategy="only_second")
        encoding = tokenizer.encode(QUESTION, CONTEXT)
        rows = []
        for row in [encoding] + encoding.overflowing:
            labels = []
            for answer in ANSWERS:
                begin = CONTEXT.index(answer)
                end = begin + len(answer)
                inside = [t for t, s in enumerate(row.sequence_ids) if s == 1]
                first, last = inside[0], inside[-1]
                if row.offsets[first][0] > begin or row.offsets[last][1] < end:
                    labels.append([0, 0])
                    continue
                while first < len(row.offsets) and row.offsets[first][0] <= begin:
                    first += 1
                while row.offsets[last][1] >= end:
                    last -= 1
                labels.append([first - 1, last + 1])
            rows.append({"ids": row.ids, "types": row.type_ids, "labels": labels})
        windows.append({"seq": length, "stride": stride, "rows": rows})
    return {"places": places, "windows": windows}


def write_spans():
    """Of the tokenizers that are there."""
    names = {"uncased": True, "cased": True, "accents": True, "steps": False, "bare": False, "roberta": True}
    made = {name: spans(Tokenizer.from_file(str(OUT / f"{name}.json")), has_pairs) for name, has_pairs in names.items()}
    answers = [bytes_of(CONTEXT, CONTEXT.index(a), CONTEXT.index(a) + len(a)) for a in ANSWERS]
    golden = {"question": QUESTION, "context": CONTEXT, "answers": answers, "tokenizers": made}
    (OUT / "spans.json").write_text(json.dumps(golden) + "\n")


def main():
    data = Path(sys.argv[1])
    OUT.mkdir(parents=True, exist_ok=True)
    made = tokenizers()
    for name, tokenizer in made.items():
        tokenizer.save(str(OUT / f"{name}.json"), pretty=False)
    rows = {f"{name}.json": expected(tokenizer, data, LENGTHS if name in ("uncased", "odd_template") else [0, 12])
            for name, tokenizer in made.items()}
    rows["vocab.txt"] = expected(vocabulary_file(made["uncased"]), data, [0])
    lines = ",\n".join(f"{json.dumps(name)}:{json.dumps(row, separators=(',', ':'))}" for name, row in rows.items())
    (OUT / "expected.json").write_text('{"texts":' + json.dumps(TEXTS) + ',"tokenizers":{\n' + lines + "}}\n")
    write_spans()


if __name__ == "__main__":
    main()
