#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizers/folders.json: JSON files beside a vocabulary, and configs.json: a
tokenizer_config.json beside a tokenizer.json, with the ids that transformers' AutoTokenizer reads with
them. Needs transformers 5; folders.json sentencepiece and protobuf, too (`configs`: without it)."""
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from transformers import AutoTokenizer
from transformers.utils import logging

HERE = Path(__file__).resolve().parent.parent / "tests/fixtures/tokenizers"
NAMES = ["<|im_start|>", "<|im_end|>", "<pad>", "[INST]", "hello", "foo bar", " x", "é!", "the"]
PARTS = NAMES + [" ", "  ", "\n", " \n", "Hi", "user", "é", "中", "a", "the end", "123", "<s>", "</s>",
                 "<unk>", "<|end|>"]
KINDS = {  # name: files, tokenizer classes
    "sp_bpe.model": (["sp_bpe.model"], ["LlamaTokenizer", "SentencePieceBackend",
                                        "TokenizersBackend", "LlamaTokenizerFast"]),
    "sp_unigram.model": (["sp_unigram.model"], ["SentencePieceBackend"]),
    "vocab.json": (["vocab.json", "merges.txt"], ["GPT2Tokenizer", "Qwen2Tokenizer"]),
}


def texts():
    rng = random.Random(1)
    made = ["<|im_start|>user\nHi<|im_end|>\n", "", " ", "hello", "a <pad> b"]
    return made + ["".join(rng.choice(PARTS) for _ in range(rng.randint(1, 9))) for _ in range(15)]


def added_tokens(rng, first):
    def flag(share):
        return rng.random() < share
    tokens = {}
    for i, name in enumerate(rng.sample(NAMES, 4)):
        special = flag(0.5)
        tokens[first + i] = {"content": name, "lstrip": flag(0.3), "rstrip": flag(0.3),
                             "single_word": False, "normalized": not special, "special": special}
    return tokens


def config_of(rng, kind, cls):
    config = {"tokenizer_class": cls, "model_max_length": 10**30}
    if kind == "vocab.json":
        # The classes add special tokens that have no id anywhere behind all others; folders that
        # they write have ids for all.
        config |= {name: "<|end|>" for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
        if cls == "GPT2Tokenizer":
            config |= {"add_prefix_space": rng.random() < 0.4, "add_bos_token": rng.random() < 0.3}
        return config
    config |= {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    if cls.startswith("Llama"):
        config |= {"legacy": rng.random() < 0.5, "add_bos_token": rng.random() < 0.7,
                   "add_eos_token": rng.random() < 0.3}
    return config


def files_of(rng, kind, cls, vocab):
    config = config_of(rng, kind, cls)
    tokens = {i: t for i, t in added_tokens(rng, len(vocab)).items() if t["content"] not in vocab}
    tokens = dict(zip(range(len(vocab), len(vocab) + len(tokens)), tokens.values()))
    special = [t["content"] for t in tokens.values() if t["special"]]
    if special and " " not in special[0] and rng.random() < 0.5:
        config["eos_token"] = special[0]
    files = {"tokenizer_config.json": config}
    if rng.random() < 0.6:
        config["added_tokens_decoder"] = {str(i): t for i, t in tokens.items()}
        config["extra_special_tokens"] = special
    else:  # as before transformers 4.34
        files["special_tokens_map.json"] = {"additional_special_tokens": special,
                                            "eos_token": config["eos_token"]}
    files["added_tokens.json"] = {t["content"]: i for i, t in tokens.items()}
    return files


def vocabulary(kind):
    if kind == "vocab.json":
        return json.loads((HERE / kind).read_text())
    import sentencepiece
    model = sentencepiece.SentencePieceProcessor(model_file=str(HERE / kind))
    return [model.id_to_piece(i) for i in range(model.get_piece_size())]


ENDS = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
BYTES = {"bos_token": "<|end|>", "eos_token": "<|end|>", "unk_token": "<|end|>"}
CONFIGS = [  # a tokenizer.json, and what the file beside it says
    *(("word_pieces/" + name, ENDS | {"tokenizer_class": kind} | keys)
      for name in ("uncased.json", "cased.json") for kind in ("BertTokenizer", "DistilBertTokenizer", "PreTrainedTokenizerFast")
      for keys in ({"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": False},
                   {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": True},
                   {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": True})),
    *(("tokenizers/gpt2.json", BYTES | {"tokenizer_class": kind, "add_prefix_space": adds})
      for kind in ("GPT2Tokenizer", "PreTrainedTokenizerFast") for adds in (True, False)),
    # Words of the vocabulary that are no added tokens, and are special here.
    *((name, {"tokenizer_class": "PreTrainedTokenizerFast"} | keys)
      for name, word in (("tokenizers/gpt2.json", "in"), ("tokenizers/llama.json", "in"), ("tokenizer_models/t5.json", "a"))
      for keys in ({"pad_token": word}, {"mask_token": {"__type": "AddedToken", "content": word, "lstrip": True, "rstrip": True}}, {"extra_special_tokens": [word]})),
    *(("tokenizers/llama.json", {"tokenizer_class": kind, "unk_token": "<unk>", "add_prefix_space": False})
      for kind in ("LlamaTokenizer", "LlamaTokenizerFast")),
]


def configs():
    """tokenizer_config.json beside a tokenizer.json that says otherwise."""
    made = ["The Scales é中É train.", "x", " a  b", "TRAINS the [SEP] end"]
    cases = []
    for name, config in CONFIGS:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(HERE.parent / name, Path(folder) / "tokenizer.json")
            (Path(folder) / "tokenizer_config.json").write_text(json.dumps(config))
            tokenizer = AutoTokenizer.from_pretrained(folder)
            cases.append({"tokenizer": name, "config": config, "ids": [tokenizer.encode(text) for text in made]})
    text = json.dumps({"texts": made, "cases": cases}, ensure_ascii=False)
    (HERE / "configs.json").write_text(text.replace('{"tokenizer"', '\n{"tokenizer"') + "\n")


def main():
    logging.set_verbosity_error()
    configs()
    if sys.argv[1:] == ["configs"]:
        return
    cases = []
    for kind, (names, classes) in KINDS.items():
        for i in range(24 if kind != "sp_unigram.model" else 6):
            rng = random.Random(f"{kind}-{i}")
            files = files_of(rng, kind, classes[i % len(classes)], vocabulary(kind))
            with tempfile.TemporaryDirectory() as folder:
                for name in names:
                    target = "tokenizer.model" if name.endswith(".model") else name
                    shutil.copy(HERE / name, Path(folder) / target)
                for name, value in files.items():
                    (Path(folder) / name).write_text(json.dumps(value))
                tokenizer = AutoTokenizer.from_pretrained(folder)
                ids = [tokenizer.encode(text) for text in texts()]
                cases.append({"vocabulary": kind, "files": files, "eos": tokenizer.eos_token_id,
                              "ids": ids})
    golden = {"texts": texts(), "cases": cases}
    (HERE / "folders.json").write_text(json.dumps(golden, ensure_ascii=False, indent=None)
                                       .replace('{"vocabulary"', '\n{"vocabulary"') + "\n")


if __name__ == "__main__":
    main()
