#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizers/pairs.json: contexts with continuations, and the tokens of both as
lm-eval scores them. Needs lm_eval (0.4.13 made the file), transformers 5, sentencepiece, protobuf."""
import json
import shutil
import tempfile
from pathlib import Path

from lm_eval.models.huggingface import HFLM
from transformers import AutoTokenizer, PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent.parent / "tests/fixtures/tokenizers"
PAIRS = [
    ("The answer is", " yes"), ("The answer is ", "yes"), ("The answer is  ", "yes"), ("The answer is\n", "yes"),
    ("Q: x\nA:\n\n", " no"), ("tab\t", "\tmore"), ("wide\u3000", "x"), ("a\u00a0", "b"), ("line\u0085", "b"),
    ("unit\x1f", "b"), ("zero\u200b", "b"), ("th", "e the"), ("the tra", "in"), ("12", "34"), ("a ", " b"), ("x", "\n\n"),
    ("é", "é!"), ("日", "本 語"), ("<s>The", " end"), ("Hello <|end|>", " there"), ("end ", "<|end|>"), (" lead", " in"),
    ("", "The end"), ("", " the"), ("hel", "lo"), ("I don", "'t"), ("  ", "indent"), ("a.", ". ."), ("😀", "😀 ok"),
]


class Pairs(HFLM):
    """What of HFLM encodes, without a model."""

    backend = "causal"
    custom_prefix_token_id = None
    add_bos_token = None
    enable_thinking = False

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def _loglikelihood_tokens(self, requests, **_):
        return [[context, continuation] for _, context, continuation in requests]

    def ids(self, pair):
        request = type("Request", (), {"args": pair})()
        return self.loglikelihood([request], disable_tqdm=True)[0]


def tokenizers():
    for name in ("gpt2.json", "llama.json", "metaspace.json", "prefix_space.json", "qwen.json", "spaces.json"):
        ends = {"bos_token": "<s>", "eos_token": "</s>"} if "SpecialToken" in (HERE / name).read_text() else {"eos_token": "<|end|>"}
        yield name, ends, PreTrainedTokenizerFast(tokenizer_file=str(HERE / name), **ends)
    for name, kind in (("sp_bpe.model", "LlamaTokenizer"), ("sp_unigram.model", "SentencePieceBackend")):
        config = {"tokenizer_class": kind, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
        config |= {"add_bos_token": True} if kind == "LlamaTokenizer" else {}
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(HERE / name, Path(folder) / "tokenizer.model")
            (Path(folder) / "tokenizer_config.json").write_text(json.dumps(config))
            yield name, config, AutoTokenizer.from_pretrained(folder)


def main():
    cases = []
    for name, config, tokenizer in tokenizers():
        lm = Pairs(tokenizer)
        cases.append({"vocabulary": name, "config": config, "ids": [lm.ids(pair) for pair in PAIRS]})
    text = json.dumps({"pairs": PAIRS, "cases": cases}, ensure_ascii=False)
    (HERE / "pairs.json").write_text(text.replace('{"vocabulary"', '\n{"vocabulary"') + "\n")


if __name__ == "__main__":
    main()
