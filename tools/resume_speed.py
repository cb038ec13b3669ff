#!/usr/bin/env python3
"""Times --resume of a run that has taken very many steps, and its peak of memory.

  tools/resume_speed.py [--program build/octet] [--steps 1000000]

Trains a tiny run for one step, and makes of it what a run of --steps steps leaves: a checkpoint of that step and a
metrics.jsonl with a line for each. Resumes it for one step more; the peak is the kernel's. Beside it the same with a
single line, so that the difference is what the lines cost. Python 3 alone.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

from attack_cases.case import TINY
from attack_cases.runs import marked


def train(program, folder, *words):
    """Seconds and peak resident MiB."""
    began = time.time()
    child = subprocess.Popen([program, "train", "t.yaml", "--quiet", *words], cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"resume_speed: octet train {' '.join(words)} failed")
    return time.time() - began, usage.ru_maxrss / 1024


def make_long(run, steps):
    """The run of one step becomes one of `steps` steps."""
    ckpt = os.path.join(run, "ckpt")
    path = os.path.join(ckpt, f"step-{steps:06}")
    os.rename(os.path.join(ckpt, "step-000001"), path)
    name = os.path.join(path, "manifest.json")
    with open(name, encoding="utf-8") as file:
        manifest = json.load(file)
    seq, windows = int(manifest["loader"]["seq"]), int(manifest["loader"]["position"])
    in_a_pass = (int(manifest["loader"]["tokens"]) - 2) // seq + 1
    drawn = windows * steps
    manifest |= {"step": steps, "attempted": steps, "tokens": drawn * seq}
    manifest["loader"] |= {"epoch": str(drawn // in_a_pass), "position": str(drawn % in_a_pass)}
    with open(name, "w", encoding="utf-8") as file:
        json.dump(manifest, file)
    marked(path, "manifest.json")
    name = os.path.join(run, "metrics.jsonl")
    with open(name, encoding="utf-8") as file:
        line = re.sub(r',"val_loss":[^},]*', "", file.readline())
    with open(name, "w", encoding="utf-8") as file:
        for step in range(1, steps + 1):
            file.write(line.replace('"step":1,', f'"step":{step},'))
    return os.path.getsize(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/octet")
    parser.add_argument("--steps", type=int, default=1_000_000)
    args = parser.parse_args()
    program = os.path.abspath(args.program)
    for steps in (1, args.steps):
        with tempfile.TemporaryDirectory(prefix="octet-resume-") as folder:
            for name, text in (("t.yaml", TINY), ("text.txt", "scale amax group moment\n" * 800)):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            train(program, folder, "--set", "train.steps=1")
            run = os.path.join(folder, "run")
            n_bytes = make_long(run, steps)
            seconds, mib = train(program, folder, "--resume", "--set", f"train.steps={steps + 1}")
            with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
                n_lines = sum(1 for _ in file)
            if n_lines != steps + 1:
                sys.exit(f"resume_speed: expected {steps + 1} lines, got {n_lines}")
            print(f"{steps:9} steps, {n_bytes / 1e6:7.1f} MB of metrics: {seconds:5.2f} s, peak {mib:.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
