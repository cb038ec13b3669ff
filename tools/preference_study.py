#!/usr/bin/env python3
"""Trains a model on pairs of answers with several recipes and seeds, and compares them in pairs on held-out ones.

    tools/preference_study.py MODEL --out OUT [--program build/octet] [--recipes bf16 coat] [--seeds 1 2 3] [--set KEY=VALUE ...]

The pairs are those of tools/make_preference_pairs.py, of one seed for all runs; a run's seed is that of its adapters and of the order
of its rows. Runs of one seed begin with the same weights and read the same rows. Writes OUT/preferences.csv, a line a run, and prints
each recipe's means and its paired differences from the first with their standard errors.
"""

import argparse
import csv
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

KEYS = ["lora.rank=8", "optim.lr=2e-4", "train.batch=16", "train.steps=16", "train.epochs=0", "train.eval_every=0",
        "train.save_every=0", "train.export=none", "train.tensorboard=false", "model.seq=48", "data.chat.template=plain"]
FIGURES = ["val_loss", "val_accuracy", "val_reward_chosen", "val_reward_rejected", "val_margin"]


def command(*words):
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        sys.exit(f"preference_study: {' '.join(words)}\n{process.stderr}")


def train(args, pairs, recipe, seed):
    out = args.out / f"{recipe}-{seed}"
    keys = [*KEYS, f"train.seed={seed}", f"data.val=[{pairs / 'val.jsonl'}]", *args.set]
    command(args.program, "train", "--quiet", "--overwrite", "--model", args.model, "--data", str(pairs / "train.jsonl"),
            "--loss", args.loss, "--recipe", recipe, "--out", str(out), *[word for key in keys for word in ("--set", key)])
    with open(out / "metrics.jsonl", encoding="utf-8") as lines:
        last = [json.loads(line) for line in lines][-1]
    return {"recipe": recipe, "seed": seed, "steps": last["step"], **{name: last[name] for name in FIGURES if name in last}}


def with_error(values):
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{statistics.mean(values):+.4f} +- {error:.4f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--program", default="build/octet")
    parser.add_argument("--loss", default="dpo")
    parser.add_argument("--recipes", nargs="+", default=["bf16", "coat"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--train", type=int, default=128, help="pairs to train on")
    parser.add_argument("--val", type=int, default=48, help="pairs to judge")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    pairs = args.out.absolute() / "pairs"
    command(sys.executable, str(Path(__file__).with_name("make_preference_pairs.py")), str(pairs), "--train", str(args.train), "--val",
            str(args.val))
    rows = []
    with open(args.out / "preferences.csv", "w", encoding="utf-8", newline="") as file:
        for seed in args.seeds:
            for recipe in args.recipes:
                rows.append(train(args, pairs, recipe, seed))
                if len(rows) == 1:
                    writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
                    writer.writeheader()
                writer.writerow({k: round(v, 4) if isinstance(v, float) else v for k, v in rows[-1].items()})
                file.flush()
    first = args.recipes[0]
    of = {(row["recipe"], row["seed"]): row for row in rows}
    for name in [name for name in FIGURES if name in rows[0]]:
        for recipe in args.recipes:
            print(f"{name} {recipe}: {with_error([of[recipe, seed][name] for seed in args.seeds])}")
        for recipe in args.recipes[1:]:
            gaps = [of[recipe, seed][name] - of[first, seed][name] for seed in args.seeds]
            print(f"{name} {recipe} - {first}: {with_error(gaps)}")


if __name__ == "__main__":
    main()
