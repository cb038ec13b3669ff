#!/usr/bin/env python3
"""Trains a small byte-level Llama, fine-tunes it with several recipes and seeds, and compares the losses in pairs.

  tools/finetune_study.py --text wiki_train_00.txt books_train_00.txt --val wiki_val_00.txt \\
      --math gsm8k/train.jsonl --math-val gsm8k/test.jsonl --tools toolbench/answer gpteacher_toolformer.json \\
      --device cuda --jobs 5 --out study

The model is recipes/llama-25m.yaml with rows of 2,048 bytes (25.96 M parameters), 1,700 steps of 65,536 bytes, and lies
in OUT/model as a model folder; where it is there already, it is taken. Each fine-tuning run is one epoch of
recipes/finetune-math.yaml or finetune-tools.yaml, its loss that of the trained tokens of the held-out conversations.
Writes OUT/losses.csv (data, variant, seed, steps, loss), a line as each run ends, and prints the paired differences
with their standard errors.
"""
import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ADAPTERS = ["recipe=bf16", "lora.rank=16", "optim.lr=1e-3"]
VARIANTS = {
    "bf16": ["recipe=bf16"],
    "coat": ["recipe=coat"],
    "coat-fast": ["recipe=coat-fast"],
    "lora-bf16": [*ADAPTERS, "lora.base=bf16"],
    "lora-e4m3": [*ADAPTERS, "lora.base=e4m3"],
}
PAIRS = [("coat", "bf16"), ("coat-fast", "bf16"), ("lora-e4m3", "lora-bf16")]
COMMON = ["optim.lr=3e-4", "optim.warmup_share=0.05", "train.export=none", "train.save_every=0", "train.keep_best=false",
          "train.patience=0", "train.tensorboard=false", "train.batch=8", "train.accumulate=1", "train.epochs=1",
          "train.eval_every=60", "model.seq=2048", "data.pack=true", "data.tokenizer=bytes", "data.chat.template=chatml"]


def octet(args, *words):
    process = subprocess.run([args.program, *words], capture_output=True, text=True, check=False)
    if process.returncode != 0:
        sys.exit(f"finetune_study: octet {' '.join(words)}\n{process.stderr}")


def sets(items):
    return [word for item in items for word in ("--set", item)]


def files(paths):
    return "[" + ", ".join(os.path.abspath(path) for path in paths) + "]"


def train_model(args, folder):
    run = os.path.join(args.out, "pretraining")
    octet(args, "train", "recipes/llama-25m.yaml", "--device", args.device, "--resume", "--quiet", *sets(
        [f"data.train={files(args.text)}", f"data.val={files([args.val])}", "model.seq=2048", "train.batch=32",
         "train.steps=1700", "train.eval_every=850", "optim.warmup=100", "optim.lr=1.5e-3", f"out={run}"]))
    octet(args, "convert", run, folder, "--dtype", "bf16")


def fine_tune(args, model, data, variant, seed):
    out = os.path.join(args.out, f"{data}-{variant}-{seed}")
    texts = {"math": [f"data.train={files([args.math])}", f"data.val={files([args.math_val])}"],
             "tools": [f"data.train={files(args.tools)}"]}[data]
    octet(args, "train", f"recipes/finetune-{data}.yaml", "--device", args.device, "--threads", str(args.threads),
          "--overwrite", "--quiet", *sets([*texts, *COMMON, *VARIANTS[variant], f"model.path={model}",
                                           f"train.seed={seed}", f"out={out}"]))
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as lines:
        steps = [json.loads(line) for line in lines]
    losses = [step["val_loss"] for step in steps if step.get("val_loss") is not None]
    return data, variant, seed, len(steps), losses[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--val", required=True)
    parser.add_argument("--math", required=True)
    parser.add_argument("--math-val", required=True)
    parser.add_argument("--tools", nargs="+", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--program", default="build/octet")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()

    os.makedirs(args.out, exist_ok=True)
    model = os.path.join(args.out, "model")
    if not os.path.exists(os.path.join(model, "config.json")):
        train_model(args, model)
    jobs = [(data, variant, seed) for data in ("math", "tools") for seed in args.seeds for variant in VARIANTS]
    losses = {}
    with open(os.path.join(args.out, "losses.csv"), "w", encoding="utf-8", newline="") as out, \
            ThreadPoolExecutor(args.jobs) as pool:
        rows = csv.writer(out)
        rows.writerow(["data", "variant", "seed", "steps", "loss"])
        for row in pool.map(lambda job: fine_tune(args, model, *job), jobs):
            rows.writerow(row)
            out.flush()
            losses[row[:3]] = row[4]
    for data in ("math", "tools"):
        for variant, base in PAIRS:
            gaps = [losses[data, variant, seed] - losses[data, base, seed] for seed in args.seeds]
            error = statistics.stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
            print(f"{data}: {variant} - {base}: {statistics.mean(gaps):+.5f} +- {error:.5f}")


if __name__ == "__main__":
    main()
