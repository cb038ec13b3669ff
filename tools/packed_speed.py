#!/usr/bin/env python3
"""Times training on packed rows beside padded ones, and attention to 16 documents of a row beside one.

  tools/packed_speed.py $DATA/eval_ft/gsm8k/train.jsonl $DATA/tokenizers/olmo/tokenizer.json --device cuda \\
      [--shapes llama-25m,llama-1.2b] [--tokens 16384] [--steps 30] [--csv packed.csv]

Rows: `octet train` from random weights, the same number of positions each step: a conversation a row of 512, a
conversation a row of --seq, rows of --seq packed. Useful tokens are those that are no padding; the rate is theirs
over the time of the last two thirds of the steps. Attention: the kernels of `octet bench step --by-kernel`, forward
and backward of one step, in rows of --seq: not divided, one document, 16 documents of one length.
Prints CSV, which --csv also writes, each row with its command.
"""
import argparse
import csv
import json
import os
import shlex
import shutil
import subprocess
import sys

FIELDS = ["what", "shape", "rows", "seq", "batch", "value", "unit", "ratio", "command"]


def run(command):
    """Its standard output; ends this program where it fails."""
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if process.returncode != 0:
        sys.exit(f"packed_speed: {shlex.join(command)}\n{process.stderr}")
    return process.stdout


def useful_rate(folder):
    """Useful tokens a second over the last two thirds of a run's steps."""
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as lines:
        steps = [json.loads(line) for line in lines]
    timed = steps[len(steps) // 3:]
    seconds = sum(step["time_ms"] for step in timed) / 1000
    return sum(step["tokens_per_s"] * step["time_ms"] for step in timed) / 1000 / seconds


class Measure:
    def __init__(self, args):
        self.args = args
        self.rows = []

    def add(self, command, **row):
        row["command"] = shlex.join(command).replace(self.args.data, "$DATA").replace(self.args.tokenizer, "$TOKENIZER")
        self.rows.append(row)
        print(",".join(str(row.get(field, "")) for field in FIELDS[:-1]), flush=True)

    def sets(self, seq, batch):
        args = self.args
        return ["--device", args.device, "--set", f"model.seq={seq}", "--set", f"train.batch={batch}",
                "--set", "model.vocab=50304", *[word for item in args.set for word in ("--set", item)]]

    def training(self, shape):
        """Padded rows first: the last row's ratio is to the faster of them."""
        args, best_padded = self.args, 0.0
        for rows, seq, pack in [("padded", 512, False), ("padded", args.seq, False), ("packed", args.seq, True)]:
            out = os.path.join(args.folder, f"{shape}-{rows}-{seq}")
            batch = max(1, args.tokens // seq)
            command = [args.program, "train", f"recipes/{shape}.yaml", "--overwrite", *self.sets(seq, batch)]
            for item in [f"recipe={args.recipe}", f"data.train=[{args.data}]", "data.val=[]", "data.val_fraction=0",
                         f"data.tokenizer={args.tokenizer}", "data.chat.template=plain",
                         f"data.pack={str(pack).lower()}", f"train.steps={args.steps}", "optim.warmup=0",
                         "data.sampling=shuffle", "train.eval_every=0", "train.save_every=0", f"out={out}"]:
                command += ["--set", item]
            run(command)
            rate = useful_rate(out)
            shutil.rmtree(out)
            self.add(command, what="train", shape=shape, rows=rows, seq=seq, batch=batch, value=round(rate),
                     unit="useful tokens/s", ratio=round(rate / best_padded, 3) if pack else "")
            best_padded = max(best_padded, rate)

    def attention(self, shape):
        """The ratio of 16 documents is to a row that is not divided, the stricter of the two."""
        args, whole = self.args, 0.0
        for rows, documents in [("whole", 0), ("1 document", 1), ("16 documents", 16)]:
            batch = max(1, args.tokens // args.seq)
            command = [args.program, "bench", "step", f"recipes/{shape}.yaml", "--by-kernel", "--json", "--rounds", "5",
                       "--recipes", args.recipe, "--documents", str(documents), *self.sets(args.seq, batch),
                       "--set", "model.layers=2"]
            kernels = [row for row in json.loads(run(command)) if ": attention" in row["name"]]
            ms = sum(float(row["value"]) for row in kernels)
            for row in kernels:
                print(f"# {row['name']}: {row['value']} ms, {row['shape']}", flush=True)
            self.add(command, what="attention", shape=shape, rows=rows, seq=args.seq, batch=batch,
                     value=round(ms, 4), unit="ms of 2 layers", ratio=round(ms / whole, 3) if whole else "")
            whole = whole or ms

    def write(self):
        if self.args.csv:
            with open(self.args.csv, "w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(self.rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("tokenizer")
    parser.add_argument("--program", default="build/octet")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shapes", default="llama-25m,llama-1.2b")
    parser.add_argument("--recipe", default="bf16")
    parser.add_argument("--seq", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=16384, help="positions of a step")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--folder", default="build/packed_speed")
    parser.add_argument("--csv")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    measure = Measure(args)
    for shape in args.shapes.split(","):
        measure.training(shape)
        measure.attention(shape)
        measure.write()
    shutil.rmtree(args.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
