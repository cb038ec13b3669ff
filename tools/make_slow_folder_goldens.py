#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizers/sp_user.model and slow_folders.json: folders that the slow classes of
transformers 4 save, of a SentencePiece model with pieces that the user defined, and the ids that these
classes read there. Needs transformers 4.57, sentencepiece, protobuf."""
import json
import tempfile
from pathlib import Path

from sentencepiece import sentencepiece_model_pb2
from transformers import LlamaTokenizer

HERE = Path(__file__).resolve().parent.parent / "tests/fixtures/tokenizers"
USER = ["<|im_start|>", "foo", "[x]"]
TEXTS = ["<|im_start|>user\nHi<|im_end|>\n", "", "hello", "a <|im_end|>b", "foo bar", "a foo b", "xfoo", "foofoo [x]", "the end<|im_end|>",
         "é中 foo!", "x <|im_start|> y", "tail "]


def main():
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString((HERE / "sp_bpe.model").read_bytes())
    for piece, text in zip(model.pieces[-len(USER):], USER):
        piece.piece, piece.score, piece.type = text, 0, 4
    (HERE / "sp_user.model").write_bytes(model.SerializeToString())
    cases = []
    for legacy in (True, False):
        for drops_config in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                tokenizer = LlamaTokenizer(vocab_file=str(HERE / "sp_user.model"), legacy=legacy)
                tokenizer.add_tokens(["<|im_end|>"], special_tokens=True)
                tokenizer.save_pretrained(folder)
                if drops_config:
                    (Path(folder) / "tokenizer_config.json").unlink()
                saved = LlamaTokenizer.from_pretrained(folder)
                files = {path.name: json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))}
                cases.append({"files": files, "ids": [saved.encode(text) for text in TEXTS]})
    text = json.dumps({"texts": TEXTS, "cases": cases}, ensure_ascii=False)
    (HERE / "slow_folders.json").write_text(text.replace('{"files"', '\n{"files"') + "\n")


if __name__ == "__main__":
    main()
