#!/usr/bin/env python3
"""How long the program goes on after a signal, by what it is doing.

  tools/signal_latency.py [--program build/octet] [--tries 5]

Starts the program, waits until it is in the phase, sends SIGINT, SIGTERM or SIGHUP in turn, and times its end. For each
phase prints the median and the longest time, the exit codes, and whether a run was saved. Where a step or a save is
under way it is brought to its end: "step" has steps of some tenths of a second, "long step" gets the signal twice, as
does "save", whose state is of 150 MB. Python 3 alone.
"""
import argparse
import os
import random
import signal
import subprocess
import tempfile
import time

from attack_cases.case import TINY, WORDS

ENDLESS = ["train", "t.yaml", "--quiet", "--set", "train.steps=1000000", "--set", "train.save_every=0"]
WIDE = ["--set", "model.hidden=1024", "--set", "model.heads=16", "--set", "model.ffn=2048", "--set", "model.layers=2"]


def lines(folder):
    try:
        with open(os.path.join(folder, "run", "metrics.jsonl"), "rb") as file:
            return file.read().count(b"\n")
    except FileNotFoundError:
        return 0


def is_saving(folder):
    ckpt = os.path.join(folder, "run", "ckpt")
    return os.path.isdir(ckpt) and any(name.endswith(".tmp") for name in os.listdir(ckpt))


# name: (arguments, seconds or what is awaited, number of signals)
PHASES = {
    "tokenizing 64 MB": ([*ENDLESS, "--set", "data.train=[long.txt]"], 0.3, 1),
    "planning 2000 layers": (["plan", "t.yaml", "--set", "model.layers=2000"], 0.5, 1),
    "compiling 2000 layers": ([*ENDLESS, "--set", "model.layers=2000"], 0.5, 1),
    "first weights": ([*ENDLESS, "--set", "model.vocab=2000000", "--set", "model.hidden=128"], 0.5, 1),
    "reading a pipe": (["opt", "-"], 0.3, 1),
    "step": ([*ENDLESS, "--set", "train.batch=256"], lambda folder: lines(folder) >= 2, 1),
    "short steps": (ENDLESS, lambda folder: lines(folder) >= 50, 1),
    "long step": ([*ENDLESS, "--set", "train.accumulate=60000"],
                  lambda folder: os.path.exists(os.path.join(folder, "run", "metrics.jsonl")), 2),
    "save": ([*ENDLESS, *WIDE, "--set", "train.save_every=1"], is_saving, 2),
    "save of one signal": ([*ENDLESS, *WIDE, "--set", "train.save_every=1"], is_saving, 1),
}


def measure(program, name, number):
    """Seconds, exit code, and whether a checkpoint is there."""
    arguments, awaited, n_signals = PHASES[name]
    with tempfile.TemporaryDirectory(prefix="octet-signal-") as folder:
        chooser = random.Random(1)
        text = "".join(chooser.choice(WORDS) for _ in range(20000))
        for file_name, content in (("t.yaml", TINY), ("text.txt", text),
                                   ("long.txt", text * (64_000_000 // len(text)) if "long.txt" in str(arguments) else "")):
            with open(os.path.join(folder, file_name), "w", encoding="utf-8") as file:
                file.write(content)
        child = subprocess.Popen([program, *arguments], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        if callable(awaited):
            while not awaited(folder) and child.poll() is None:
                time.sleep(0.002)
        else:
            time.sleep(awaited)
        if child.poll() is not None:
            return 0.0, "ended before", False
        began = time.time()
        for i in range(n_signals):
            if i:
                time.sleep(0.02)
            child.send_signal(number)
        code = child.wait()
        return time.time() - began, code, os.path.isdir(os.path.join(folder, "run", "ckpt"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/octet")
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--phases", default=",".join(PHASES))
    args = parser.parse_args()
    program = os.path.abspath(args.program)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    print(f"{'while':24}{'median s':>10}{'longest s':>10}  exit codes, saved")
    for name in args.phases.split(","):
        found = [measure(program, name, numbers[i % 3]) for i in range(args.tries)]
        times = sorted(seconds for seconds, _, _ in found)
        codes = sorted({str(code) for _, code, _ in found})
        n_saved = sum(saved for _, _, saved in found)
        print(f"{name:24}{times[len(times) // 2]:10.3f}{times[-1]:10.3f}  {' '.join(codes)}, {n_saved} of {len(found)}", flush=True)


if __name__ == "__main__":
    main()
