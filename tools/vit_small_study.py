#!/usr/bin/env python3
"""A ViT-small on CIFAR-10 by Octet's recipes beside PyTorch's BF16 autocast, in pairs: same files, first weights, order of pictures,
learning rates and optimizer.

    tools/vit_small_study.py --program octet --train a.pack --val b.pack --out DIR [--seeds 5] [--steps 400] [--device cuda]

A pair of runs differs in arithmetic alone. The first weights are transformers' for a seed, which Octet loads as a model folder; pictures come in
the files' order; PyTorch takes the learning rates that Octet's run recorded. Writes runs.csv (seed, side, top1, val_loss, train_loss: the mean of
the last 50 steps) and prints means, and paired differences with their standard errors.
"""

import argparse
import io
import os
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image
from transformers import ViTConfig, ViTForImageClassification

import paired_runs
from paired_runs import last_loss, paired, rates, records, train_torch, write

MEAN, STD, BATCH = 0.48, 0.25, 128


def read_pack(path):
    """Pixels [n, 3, 32, 32] in f32, normalized as data.images does, and labels."""
    data, at, pixels, labels = open(path, "rb").read(), 0, [], []
    while at < len(data):
        label, size = data[at], struct.unpack_from("<I", data, at + 1)[0]
        pixels.append(np.asarray(Image.open(io.BytesIO(data[at + 5:at + 5 + size])).convert("RGB")))
        labels.append(label)
        at += 5 + size
    x = (np.stack(pixels).astype(np.float32) / np.float32(255) - np.float32(MEAN)) / np.float32(STD)
    return torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2))), torch.tensor(labels)


def first_weights(seed, folder):
    torch.manual_seed(seed)
    config = ViTConfig(hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536, image_size=32, patch_size=4,
                       num_labels=10, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    model = ViTForImageClassification(config)
    model.save_pretrained(folder)
    return model


def run_octet(args, seed, recipe):
    return paired_runs.run_octet(args.program, args.device, f"{args.out}/octet_{recipe}_{seed}", [
        f"model.path={args.out}/init_{seed}", f"recipe={recipe}", f"data.train=[{args.train}]", f"data.val=[{args.val}]",
        "data.sampling=sequential", f"data.images.mean=[{MEAN}]", f"data.images.std=[{STD}]", f"train.steps={args.steps}",
        f"train.batch={BATCH}", f"train.eval_every={args.steps}", "train.eval_bytes=1000000000", "train.save_every=0",
        f"train.seed={seed}", "optim.lr=5.0e-4", "optim.warmup=100", "optim.betas=[0.9, 0.999]", "optim.weight_decay=0", *args.set])


def figures(out):
    lines = records(out)
    train = [one["loss"] for one in lines if "loss" in one]
    last = [one for one in lines if "val_loss" in one][-1]
    return {"top1": 100 * last["val_accuracy"], "val_loss": last["val_loss"], "train_loss": last_loss(train)}


def run_torch(args, model, step_rates, train, val):
    """Under BF16 autocast, in Octet's order."""
    device = "cuda" if args.device == "cuda" else "cpu"
    model = model.to(device).train()
    pixels, labels = (x.to(device) for x in train)

    def loss_of(step):
        rows = torch.arange(step * BATCH, (step + 1) * BATCH, device=device) % len(labels)
        with torch.autocast(device, torch.bfloat16):
            logits = model(pixel_values=pixels[rows]).logits
        return torch.nn.functional.cross_entropy(logits.float(), labels[rows])

    losses = train_torch(model, step_rates, loss_of)
    model.eval()
    right = total = 0.0
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        for at in range(0, len(val[1]), 500):
            logits = model(pixel_values=val[0][at:at + 500].to(device)).logits.float()
            target = val[1][at:at + 500].to(device)
            right += (logits.argmax(1) == target).sum().item()
            total += torch.nn.functional.cross_entropy(logits, target, reduction="sum").item()
    n = len(val[1])
    return {"top1": 100 * right / n, "val_loss": total / n, "train_loss": last_loss(losses)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/octet")
    parser.add_argument("--train", required=True)
    parser.add_argument("--val", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--recipes", default="bf16,fp8_linear,hif8,coat")
    parser.add_argument("--jobs", type=int, default=4, help="runs of Octet at a time")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    recipes, seeds, rows = args.recipes.split(","), range(1, args.seeds + 1), []
    models = {seed: first_weights(seed, f"{args.out}/init_{seed}") for seed in seeds}
    with ThreadPoolExecutor(args.jobs) as pool:
        outs = list(pool.map(lambda pair: run_octet(args, *pair), [(seed, recipe) for seed in seeds for recipe in recipes]))
    for (seed, recipe), out in zip([(seed, recipe) for seed in seeds for recipe in recipes], outs):
        rows.append({"seed": seed, "side": recipe, **figures(out)})
    train, val = read_pack(args.train), read_pack(args.val)
    step_rates = rates(outs[0])
    assert len(step_rates) == args.steps, len(step_rates)
    for seed in seeds:
        rows.append({"seed": seed, "side": "pytorch_bf16", **run_torch(args, models[seed], step_rates, train, val)})
        print(rows[-1], file=sys.stderr, flush=True)
        write(f"{args.out}/runs.csv", rows)
    for side in [*recipes, "pytorch_bf16"]:
        mean = {f: np.mean([row[f] for row in rows if row["side"] == side]) for f in ("top1", "val_loss", "train_loss")}
        print(f"{side:14s} top1 {mean['top1']:.2f}  val_loss {mean['val_loss']:.4f}  train_loss {mean['train_loss']:.4f}")
    for side, other in [("bf16", "pytorch_bf16")] + [(recipe, "bf16") for recipe in recipes if recipe != "bf16"]:
        text = "  ".join("{} {:+.4f} +- {:.4f}".format(figure, *paired(rows, side, other, figure)) for figure in ("top1", "val_loss", "train_loss"))
        print(f"{side} - {other}: {text}")


if __name__ == "__main__":
    main()
