#!/usr/bin/env python3
"""`octet embed` beside transformers on the same folder and texts: how far the vectors are apart, and the seconds of both.

    tools/compare_embeddings.py PROGRAM MODEL TEXTS [--rounds N] [--threads N] [--articles N] [--csv FILE]

TEXTS has a text a line; with --articles it has articles, of which N paragraphs and N sentences are drawn. transformers takes the mean over a
text's tokens and normalizes; texts are sorted by length, 32 at a time, at most 256 tokens each. The two run one after the other in each round.
Neither's seconds hold reading the program and its weights into memory, Octet's hold compiling. Needs numpy, torch and transformers.
"""

import argparse
import csv
import json
import random
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer, BertModel

import papers_data

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


def drawn(path, n):
    paragraphs = papers_data.paragraphs(path)
    sentences = [sentence for paragraph in paragraphs for sentence in papers_data.sentences(paragraph)]
    rng = random.Random(0)
    rng.shuffle(paragraphs)
    rng.shuffle(sentences)
    return paragraphs[:n] + sentences[:n]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--articles", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    texts = arguments.texts.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    if arguments.articles > 0:
        texts = drawn(arguments.texts, arguments.articles)
    rows, reference = [], Reference(arguments.model)
    with tempfile.TemporaryDirectory() as folder:
        out, source = Path(folder) / "out.npy", Path(folder) / "texts.txt"
        source.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
        for _ in range(arguments.rounds):
            done = subprocess.run([arguments.program, "embed", "--overwrite", "--model", arguments.model, "--texts", source, "--out", out,
                                   "--threads", str(arguments.threads), "--max-tokens", str(LONGEST), "--quiet", "--json"],
                                  check=True, capture_output=True, text=True)
            began = time.time()
            theirs = reference.embed(texts).astype(np.float64)
            seconds = time.time() - began
            ours = np.load(out).astype(np.float64)
            cosine = (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
            line = json.loads(done.stdout)[0]
            rows.append({"texts": len(texts), "tokens": line["tokens"], "largest_1_minus_cosine": f"{max(1 - cosine):.2g}",
                         "octet_s": f"{line['seconds']:.2f}", "transformers_s": f"{seconds:.2f}"})
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if arguments.csv:
        with open(arguments.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
