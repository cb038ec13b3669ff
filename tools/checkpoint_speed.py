#!/usr/bin/env python3
"""Times saving and resuming a run of a model's size beside the disk's own speed.

  tools/checkpoint_speed.py [recipes/llama-2-7b.yaml] [--device cuda] [--set optim.master=bf16_sr] ...

Trains one step on generated text, saves, and resumes in a second process; both processes' peak resident
memory is the kernel's. The disk's own speed: a file of --disk-gib written with `dd ... conv=fdatasync`,
and read back with O_DIRECT. Needs about --disk-gib GiB, then the checkpoint's size, free in --folder, which
is removed at the end. Prints one line each: what, seconds, bytes, GB/s, share of the disk's, peak of memory.
"""
import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import time


def peak_of(command):
    """Runs it; the text that it wrote on standard error, and its peak resident bytes."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    text = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"checkpoint_speed: {' '.join(command)}\n{text}")
    return text, usage.ru_maxrss * 1024


def disk_rates(folder, gib):
    path = os.path.join(folder, "disk")
    n_bytes = gib << 30
    began = time.time()
    subprocess.run(["dd", "if=/dev/zero", f"of={path}", "bs=16M", f"count={gib * 64}", "conv=fdatasync"],
                   check=True, stderr=subprocess.DEVNULL)
    write = n_bytes / (time.time() - began)
    began = time.time()
    direct = subprocess.run(["dd", f"if={path}", "of=/dev/null", "bs=16M", "iflag=direct"], stderr=subprocess.DEVNULL)
    read = n_bytes / (time.time() - began) if direct.returncode == 0 else 0.0
    os.remove(path)
    return write, read


def logged(text, pattern):
    """Seconds of the log line with this beginning: "saved step 1: 25.1 GiB in 12.34 s, 2.18 GB/s"."""
    match = re.search(pattern + r".*? in ([0-9.]+) s", text)
    if match is None:
        sys.exit(f"checkpoint_speed: expected a line '{pattern}', got:\n{text}")
    return float(match.group(1))


def checkpoint_bytes(run):
    total = 0
    for folder, _, files in os.walk(os.path.join(run, "ckpt")):
        total += sum(os.path.getsize(os.path.join(folder, name)) for name in files)
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default="recipes/llama-2-7b.yaml")
    parser.add_argument("--program", default="build/octet")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folder", default="build/checkpoint_speed")
    parser.add_argument("--disk-gib", type=int, default=8)
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()

    os.makedirs(args.folder, exist_ok=True)
    text, run = os.path.join(args.folder, "text.txt"), os.path.join(args.folder, "run")
    words = random.Random(1)
    with open(text, "w", encoding="ascii") as out:
        out.write("".join(words.choice("abcdefgh \n") for _ in range(1 << 20)))
    write_rate, read_rate = disk_rates(args.folder, args.disk_gib)
    print(f"disk: write {write_rate / 1e9:.2f} GB/s, read {read_rate / 1e9:.2f} GB/s")
    command = [args.program, "train", args.config, "--device", args.device]
    for item in ["data.tokenizer=bytes", f"data.train=[{text}]", "data.val=[]", "data.val_fraction=0", "train.batch=1",
                 "train.steps=1", "optim.warmup=0", "train.save_every=0", "train.tensorboard=false", f"out={run}", *args.set]:
        command += ["--set", item]
    saved, save_peak = peak_of(command)
    n_bytes = checkpoint_bytes(run)
    # What lies in the system's cache would be read at memory's speed: drop it where we may.
    dropped = subprocess.run("sync; echo 3 > /proc/sys/vm/drop_caches", shell=True, stderr=subprocess.DEVNULL).returncode == 0
    resumed, resume_peak = peak_of([*command, "--resume"])
    for what, seconds, rate, peak in [("save", logged(saved, "saved step 1"), write_rate, save_peak),
                                      ("resume", logged(resumed, "resuming from"), read_rate, resume_peak)]:
        share = f"{n_bytes / seconds / rate:.2f} of the disk's" if rate > 0 else "the disk's unknown"
        print(f"{what}: {seconds:.2f} s, {n_bytes} bytes, {n_bytes / seconds / 1e9:.2f} GB/s, {share}, "
              f"peak of host memory {peak / (1 << 30):.2f} GiB")
    if not dropped:
        print("resume: the file cache could not be dropped first: part of it came from memory")
    shutil.rmtree(args.folder)


if __name__ == "__main__":
    main()
