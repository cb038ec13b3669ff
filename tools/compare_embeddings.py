#!/usr/bin/env python3
"""`octet embed` beside transformers on the same folder and texts: how far the vectors are apart, and the seconds of both.

    tools/compare_embeddings.py PROGRAM MODEL TEXTS [--rounds N] [--threads N]

TEXTS has a text a line. transformers takes the mean over a text's tokens and normalizes; texts are sorted by length, 32 at a time, at most 256
tokens each. The two run one after the other in each round. Neither's seconds hold reading the program and its weights into memory, Octet's
hold compiling. Needs numpy, torch and transformers.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer, BertModel

BATCH, LONGEST = 32, 256


class Reference:
    def __init__(self, folder):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()

    def embed(self, texts):
        ids = self.tokenizer(texts, truncation=True, max_length=LONGEST)["input_ids"]
        order = sorted(range(len(texts)), key=lambda i: -len(ids[i]))
        rows = np.zeros((len(texts), self.model.config.hidden_size), np.float32)
        with torch.inference_mode():
            for first in range(0, len(order), BATCH):
                group = order[first:first + BATCH]
                longest = len(ids[group[0]])
                tokens = torch.tensor([ids[i] + [0] * (longest - len(ids[i])) for i in group])
                mask = torch.tensor([[1] * len(ids[i]) + [0] * (longest - len(ids[i])) for i in group])
                hidden = self.model(input_ids=tokens, attention_mask=mask).last_hidden_state
                share = mask[..., None].to(hidden.dtype)
                mean = (hidden * share).sum(1) / share.sum(1)
                rows[group] = torch.nn.functional.normalize(mean, dim=1).numpy()
        return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    texts = arguments.texts.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    reference = Reference(arguments.model)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.npy"
        for _ in range(arguments.rounds):
            done = subprocess.run([arguments.program, "embed", "--model", arguments.model, "--texts", arguments.texts, "--out", out,
                                   "--threads", str(arguments.threads), "--max-tokens", str(LONGEST), "--quiet", "--json"],
                                  check=True, capture_output=True, text=True)
            began = time.time()
            theirs = reference.embed(texts).astype(np.float64)
            seconds = time.time() - began
            ours = np.load(out).astype(np.float64)
            cosine = (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
            print(f"texts {len(texts)}, 1 - cosine at most {max(1 - cosine):.2g}, octet {json.loads(done.stdout)[0]['seconds']:.2f} s, "
                  f"transformers {seconds:.2f} s")


if __name__ == "__main__":
    main()
