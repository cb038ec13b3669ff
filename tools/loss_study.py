#!/usr/bin/env python3
"""Trains variants of one configuration with several seeds and compares their validation losses in pairs.

  tools/loss_study.py recipes/llama-25m.yaml --train wiki_train_00.txt --val wiki_val_00.txt \\
      --variants bf16 coat fp8_linear 'bf16-e4m3x: recipe=bf16 optim.state_m=e4m3+x optim.state_v=e4m3+x' \\
      --seeds 1 2 3 --jobs 4 --threads 4 --out study

A variant is a recipe's name, or `name: key=value key=value`. Each run lies in OUT/<variant>-<seed> and is resumed where it was
cut off. Writes OUT/curves.csv (variant, seed, step, loss, val_loss; training losses are means since the row before) and
OUT/table.txt: validation loss per seed, mean, and the paired difference to the first variant with its standard error.
"""
import argparse
import csv
import json
import math
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor


def parse_variant(text):
    name, _, sets = text.partition(":")
    return name.strip(), sets.split() or [f"recipe={name.strip()}"]


def run(args, variant, seed, deadline):
    name, sets = variant
    if time.time() > deadline:
        return name, seed, 0, "not started: out of time", 0
    out = os.path.join(args.out, f"{name}-{seed}")
    command = [args.program, "train", args.config, "--resume", "--quiet", "--threads", str(args.threads), "--device", args.device,
               "--seed", str(seed)]
    for item in [*sets, f"data.train=[{args.train}]", f"data.val=[{args.val}]", f"out={out}", *args.set]:
        command += ["--set", item]
    began = time.time()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        _, err = process.communicate(timeout=max(1.0, deadline - time.time()))
    except subprocess.TimeoutExpired:
        process.terminate()  # saves and exits
        _, err = process.communicate()
    return name, seed, process.returncode, err.strip(), time.time() - began


def read_metrics(path):
    rows = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                rows.append(json.loads(line))
    return rows


def write_curves(args, runs):
    with open(os.path.join(args.out, "curves.csv"), "w", newline="", encoding="utf-8") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(["variant", "seed", "step", "loss", "val_loss"])
        for name, seed in runs:
            pending = []
            for row in read_metrics(os.path.join(args.out, f"{name}-{seed}", "metrics.jsonl")):
                pending.append(row["loss"])
                if row["step"] % args.every == 0:
                    val = row.get("val_loss")
                    out.writerow([name, seed, row["step"], f"{sum(pending) / len(pending):.5f}", "" if val is None else f"{val:.5f}"])
                    pending = []


def mean_and_error(values):
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))


def table(args, variants):
    finals, lines = {}, []
    for name, _ in variants:
        for seed in args.seeds:
            rows = [r for r in read_metrics(os.path.join(args.out, f"{name}-{seed}", "metrics.jsonl")) if r.get("val_loss") is not None]
            if rows:
                finals[name, seed] = (rows[-1]["step"], rows[-1]["val_loss"])
    steps = max((step for step, _ in finals.values()), default=0)
    base = variants[0][0]
    lines.append(f"{'variant':16} {'validation loss by seed':32} {'mean':>8}   paired difference to {base} +- standard error")
    for name, _ in variants:
        done = {s: finals[name, s][1] for s in args.seeds if steps and finals.get((name, s), (0, 0))[0] == steps}
        if not done:
            lines.append(f"{name:16} unfinished")
            continue
        mean, _ = mean_and_error(list(done.values()))
        pairs = [loss - finals[base, s][1] for s, loss in done.items() if finals.get((base, s), (0, 0))[0] == steps]
        text = "" if name == base or not pairs else "{:+.5f} +- {:.5f}".format(*mean_and_error(pairs))
        lines.append(f"{name:16} {' '.join(f'{s}:{v:.5f}' for s, v in done.items()):32} {mean:8.5f}   {text}")
    lines.append(f"at step {steps}; command: {' '.join(sys.argv)}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--program", default="build/octet")
    parser.add_argument("--train", required=True)
    parser.add_argument("--val", required=True)
    parser.add_argument("--variants", nargs="+", default=["bf16", "coat"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--threads", type=int, default=0, help="of each run")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--every", type=int, default=20, help="steps between rows of curves.csv")
    parser.add_argument("--minutes", type=float, default=10000, help="stop and save after this long; call again to go on")
    parser.add_argument("--set", action="append", default=[], help="a.b=c for every run")
    parser.add_argument("--out", default="study")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    variants = [parse_variant(text) for text in args.variants]
    deadline = time.time() + 60 * args.minutes
    # Seeds outside: a study that is cut off has whole pairs.
    todo = [(variant, seed) for seed in args.seeds for variant in variants]
    with ThreadPoolExecutor(args.jobs) as pool:
        for name, seed, code, err, seconds in pool.map(lambda job: run(args, *job, deadline), todo):
            print(f"{name}-{seed}: exit {code} after {seconds:.0f} s {err[-300:]}", flush=True)
    write_curves(args, [(variant[0], seed) for variant, seed in todo])
    text = table(args, variants)
    with open(os.path.join(args.out, "table.txt"), "w", encoding="utf-8") as f:
        f.write(text)
    print(text, end="")


if __name__ == "__main__":
    main()
