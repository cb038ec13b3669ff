#!/usr/bin/env python3
"""ResNet-20 on CIFAR-10 by PyTorch in BF16 (autocast), as recipes/resnet20-cifar10.yaml trains it: same files, pictures, schedule and decay.

    tools/resnet_baseline.py --train DIR/train_jpeg.pack --val DIR/test_jpegdecoded.bin.xz [--epochs 30] [--seeds 3] [--device cuda] [--csv FILE]

Each picture of the pack is decoded once. A line a seed: the last loss, cross entropy and accuracy of all pictures of --val in evaluation, and
milliseconds a step (median, of training alone). The shortcuts have no weights (He et al.'s option A); convolutions begin as He et al. 2015 by what
they give to, the classifier as N(0, 0.02). --dtype fp32 computes in single precision. With --octet PROGRAM --rounds N the two train in turns on --threads cores
of a CPU, --steps steps each, PyTorch first: milliseconds a step (median), last losses, and how many times as fast the program is. Needs torch, numpy
and Pillow.
"""

import argparse
import csv
import io
import json
import lzma
import math
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201)
WIDTHS, BLOCKS, PAD = (16, 32, 64), 3, 4


class Block(nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out)
        self.conv2, self.bn2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out)
        self.stride, self.n_more = stride, n_out - n_in

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.n_more:
            x = F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, self.n_more // 2, self.n_more - self.n_more // 2))
        return F.relu(y + x)


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, WIDTHS[0], 3, 1, 1, bias=False), nn.BatchNorm2d(WIDTHS[0])
        blocks, n_in = [], WIDTHS[0]
        for width in WIDTHS:
            for i in range(BLOCKS):
                blocks.append(Block(n_in, width, 2 if i == 0 and width > WIDTHS[0] else 1))
                n_in = width
        self.blocks, self.linear = nn.Sequential(*blocks), nn.Linear(n_in, 10)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        return self.linear(self.blocks(F.relu(self.bn1(self.conv1(x)))).mean((2, 3)))


def read_pack(path, limit):
    """Records [u8 label][u32 n][n bytes of a picture]; bytes [N, 3, 32, 32] and labels."""
    data, at, pictures, labels = Path(path).read_bytes(), 0, [], []
    while at < len(data) and (limit == 0 or len(labels) < limit):
        label, n = struct.unpack_from("<BI", data, at)
        pictures.append(np.asarray(Image.open(io.BytesIO(data[at + 5:at + 5 + n])).convert("RGB")))
        labels.append(label)
        at += 5 + n
    return torch.from_numpy(np.stack(pictures).transpose(0, 3, 1, 2).copy()), torch.tensor(labels)


def read_records(path):
    """CIFAR-10's records, compressed by xz."""
    data = np.frombuffer(lzma.open(path).read(), np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return torch.from_numpy(data[:, 1:].reshape(-1, 3, 32, 32).copy()), torch.from_numpy(data[:, 0].astype(np.int64))


def normalized(pixels):
    shape = (1, 3, 1, 1)
    mean, std = (torch.tensor(of, device=pixels.device).view(shape) for of in (MEAN, STD))
    return (pixels.float() / 255 - mean) / std


def cropped(pixels, random):
    """A random square of each picture with a black border, mirrored by chance."""
    n, side = len(pixels), pixels.shape[-1]
    padded = F.pad(pixels, (PAD,) * 4)
    first = torch.randint(0, 2 * PAD + 1, (2, n, 1), generator=random, device=pixels.device)
    place = torch.arange(side, device=pixels.device)
    rows, columns = first[0] + place, first[1] + place
    flips = torch.rand(n, 1, generator=random, device=pixels.device) < 0.5
    columns = torch.where(flips, columns.flip(1), columns)
    entry = torch.arange(n, device=pixels.device)
    return padded[entry[:, None, None, None], torch.arange(3, device=pixels.device)[None, :, None, None], rows[:, None, :, None],
                  columns[:, None, None, :]]


def rate(args, step, steps):
    """Step counts from 1; the cosine would reach 0 one step behind the last."""
    if step <= args.warmup:
        return args.lr * step / args.warmup
    first = max(args.warmup, 1)
    return args.lr * (1 + math.cos(math.pi * (step - first) / (steps + 1 - first))) / 2


def train(args, seed, data):
    (pixels, labels), (val_pixels, val_labels) = data
    torch.manual_seed(seed)
    random = torch.Generator(device=args.device).manual_seed(seed)
    model = ResNet20().to(args.device, memory_format=torch.channels_last)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.SGD([{"params": decayed, "weight_decay": args.weight_decay}, {"params": others}], lr=args.lr, momentum=0.9)
    is_cuda = args.device.startswith("cuda")
    steps, step, times, loss = args.steps or int(args.epochs * len(pixels) / args.batch), 0, [], None

    def loss_of(x, y):
        with torch.autocast(args.device.split(":")[0], torch.bfloat16, enabled=args.dtype == "bf16"):
            return F.cross_entropy(model(x).float(), y)

    forward = torch.compile(loss_of) if args.compile else loss_of
    model.train()
    while step < steps:
        order = torch.randperm(len(pixels), generator=random, device=args.device)
        for first in range(0, len(pixels) - args.batch + 1, args.batch):
            if step == steps:
                break
            step += 1
            if is_cuda and step % 100 == 0:
                torch.cuda.synchronize()
            start = time.perf_counter()
            chosen = order[first:first + args.batch]
            x = normalized(cropped(pixels[chosen], random)).contiguous(memory_format=torch.channels_last)
            for group in optimizer.param_groups:
                group["lr"] = rate(args, step, steps)
            loss = forward(x, labels[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if is_cuda and step % 100 == 0:
                torch.cuda.synchronize()
            if step % 100 == 0 or not is_cuda:
                times.append(1000 * (time.perf_counter() - start))
            if not is_cuda and step == 5:
                times.clear()
    model.eval()
    right, nll = 0, 0.0
    with torch.no_grad(), torch.autocast(args.device.split(":")[0], torch.bfloat16, enabled=args.dtype == "bf16"):
        for first in range(0, len(val_pixels), 500):
            part = slice(first, first + 500)
            logits = model(normalized(val_pixels[part]).contiguous(memory_format=torch.channels_last)).float()
            right += (logits.argmax(1) == val_labels[part]).sum().item()
            nll += F.cross_entropy(logits, val_labels[part], reduction="sum").item()
    n = len(val_pixels)
    return {"variant": f"pytorch-{args.dtype}", "seed": seed, "steps": steps, "loss": f"{loss.item():.6f}", "cross_entropy": f"{nll / n:.6f}",
            "acc": f"{right / n:.6f}", "rows": n, "step_ms": f"{statistics.median(times or [0]):.3f}"}


def octet_steps(args, folder):
    """Milliseconds of a step of the program, and its last loss; the first steps, which make kernels, are left out."""
    sets = [f"data.train=[{args.train}]", "data.val=[]", "data.val_fraction=0", f"train.steps={args.steps}", f"train.batch={args.batch}",
            f"optim.warmup={args.warmup}", f"optim.lr={args.lr}", "train.eval_every=0", "train.export=none", "train.tensorboard=false",
            "train.log_every=1", f"recipe={args.dtype}", f"out={folder}"]
    subprocess.run([args.octet, "train", "recipes/resnet20-cifar10.yaml", "--overwrite", "--quiet", "--threads", str(args.threads),
                    *[word for item in sets for word in ("--set", item)]], check=True, capture_output=True)
    steps = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return statistics.median(step["time_ms"] for step in steps[5:]), steps[-1]["loss"]


def compare(args, data):
    ratios = []
    for _ in range(args.rounds):
        theirs = train(args, args.first_seed, data)
        with tempfile.TemporaryDirectory() as folder:
            ms, loss = octet_steps(args, folder)
        ratios.append(float(theirs["step_ms"]) / ms)
        print(f"pytorch {theirs['step_ms']} ms, loss {theirs['loss']}; octet {ms:.1f} ms, loss {loss:.6f}; ratio {ratios[-1]:.2f}", flush=True)
    print(f"ratio {statistics.median(ratios):.2f}, best {max(ratios):.2f} of {len(ratios)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True)
    parser.add_argument("--val", required=True)
    parser.add_argument("--epochs", type=float, default=30)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--warmup", type=int, default=400)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rows", type=int, default=0, help="of the training data; 0: all")
    parser.add_argument("--csv")
    parser.add_argument("--steps", type=int, default=0, help="instead of epochs")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--octet", help="program to compare with, on a CPU")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    data = [[one.to(args.device) for one in part] for part in (read_pack(args.train, args.rows), read_records(args.val))]
    if args.octet:
        return compare(args, [data[0], [part[:500] for part in data[1]]])
    rows = []
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        rows.append(train(args, seed, data))
        print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
        if args.csv:
            with open(args.csv, "w", newline="", encoding="utf-8") as lines:
                out = csv.DictWriter(lines, rows[0].keys(), lineterminator="\n")
                out.writeheader()
                out.writerows(rows)


if __name__ == "__main__":
    main()
