"""What studies of Octet beside PyTorch share: runs that begin with the same weights, read the same rows and take the same learning rates."""

import csv
import json
import math
import subprocess

import torch

LAST = 50  # steps whose mean is the loss that a run ends with


def run_octet(program, device, out, keys):
    """`octet train` with these keys alone, its output in OUT.log; the folder."""
    with open(out + ".yaml", "w", encoding="utf-8") as config:
        config.write("train: {}\n")
    command = [program, "train", config.name, "--device", device, "--quiet"]
    for key in [*keys, f"out={out}"]:
        command += ["--set", key]
    with open(out + ".log", "w", encoding="utf-8") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log)
    return out


def records(out):
    with open(f"{out}/metrics.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def rates(out):
    return [one["lr"] for one in records(out) if "loss" in one]


def last_loss(losses):
    return sum(losses[-LAST:]) / LAST


def train_torch(model, step_rates, loss_of, betas=(0.9, 0.999)):
    """AdamW in f32 without decay, the norm clipped at 1, a step for each rate. loss_of(step) gives its loss. All losses."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1, betas=betas, eps=1e-8, weight_decay=0)
    losses = []
    for step, rate in enumerate(step_rates):
        loss = loss_of(step)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def write(path, rows, digits=4):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: round(v, digits) if isinstance(v, float) else v for k, v in row.items()} for row in rows)


def paired(rows, side, other, figure):
    """The mean over seeds of side - other, and its standard error."""
    of = {(row["seed"], row["side"]): row[figure] for row in rows}
    seeds = sorted({row["seed"] for row in rows})
    differences = [of[seed, side] - of[seed, other] for seed in seeds]
    mean = sum(differences) / len(differences)
    error = math.sqrt(sum((d - mean) ** 2 for d in differences) / max(len(differences) - 1, 1) / len(differences))
    return mean, error
