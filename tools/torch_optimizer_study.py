#!/usr/bin/env python3
"""Does octet.optim.AdamW learn as well as AdamW with f32 states, in plain PyTorch, and what memory do its states take?

    tools/torch_optimizer_study.py --text FILE [--steps 2000] [--seeds 1,2,3] [--out RUNS.csv]
    tools/torch_optimizer_study.py --only base --seeds 2 --text FILE >> RUNS.csv      one run
    tools/torch_optimizer_study.py --table RUNS.csv...                                the table of runs that are done

A model of GPT-2's shape (124M parameters, weights in BF16, byte tokens, 16 x 512 of them a step) is trained from the same weights on
the same batches with each optimizer:
    base         torch.optim.AdamW on f32 masters, f32 moments; the weights are the masters rounded
    remainder    octet.optim.AdamW, e4m3+x moments, master="bf16_remainder"
    sr           octet.optim.AdamW, e4m3+x moments, master="bf16_sr"
A run prints one line of CSV: the loss of text that was held out (nats a token), tokens a second, and what making the optimizer and its
first step added to torch.cuda.memory_allocated (on the CPU: the sum of its tensors), in bytes and by the parameter. The table pairs
runs of the same seed. On one H200 a run of 2,000 steps takes a few minutes; --config tiny is done in seconds on a CPU.
Wants PyTorch, the package octet on the path and for a GPU the CUDA module (OCTET_CUDA_MODULE).
"""

import argparse
import csv
import json
import lzma
import math
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

LR, BETAS, EPS, DECAY, CLIP = 6e-4, (0.9, 0.95), 1e-8, 0.1, 1.0
WARM_SHARE, LAST_SHARE = 0.05, 0.1  # of the steps the rate rises; of the rate is left at the end
FIELDS = ["optimizer", "config", "seed", "steps", "loss", "tokens_per_s", "state_bytes", "bytes_per_parameter", "parameters"]


@dataclass
class Config:
    hidden: int
    layers: int
    heads: int
    vocab: int
    length: int  # positions that the model has
    batch: int
    seq: int
    steps: int
    held: int    # windows of held out text


CONFIGS = {"gpt2-124m": Config(768, 12, 12, 50304, 1024, 16, 512, 2000, 128),
           "tiny": Config(32, 2, 2, 256, 64, 4, 32, 30, 8)}


def make_model(c, seed, device):
    """GPT-2: learned positions, LayerNorm before each part, a head that is the embedding; weights in BF16."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(c.hidden), nn.LayerNorm(c.hidden)
            self.qkv, self.out = nn.Linear(c.hidden, 3 * c.hidden), nn.Linear(c.hidden, c.hidden)
            self.up, self.down = nn.Linear(c.hidden, 4 * c.hidden), nn.Linear(4 * c.hidden, c.hidden)

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, c.heads, d // c.heads).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(c.vocab, c.hidden), nn.Embedding(c.length, c.hidden)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(c.layers)), nn.LayerNorm(c.hidden)

        def forward(self, tokens, targets):
            x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            logits = F.linear(self.norm(x), self.tokens.weight)
            return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    torch.manual_seed(seed)
    model = Model()
    for name, p in model.named_parameters():
        if p.dim() == 2:
            std = 0.02 / math.sqrt(2 * c.layers) if name.endswith(("out.weight", "down.weight")) else 0.02
            nn.init.normal_(p, 0, std)
        elif name.endswith("bias"):
            nn.init.zeros_(p)
    return model.to(device, torch.bfloat16)


def groups_of(named):
    named = list(named)
    return [{"params": [(n, p) for n, p in named if p.dim() >= 2], "weight_decay": DECAY},
            {"params": [(n, p) for n, p in named if p.dim() < 2], "weight_decay": 0.0}]


class Base:
    """torch.optim.AdamW on f32 masters of BF16 weights."""

    def __init__(self, model, device):
        import torch
        self.torch, self.weights = torch, list(model.parameters())
        self.masters = [p.detach().float() for p in self.weights]
        names = [n for n, _ in model.named_parameters()]
        groups = [{**g, "params": [p for _, p in g["params"]]} for g in groups_of(zip(names, self.masters))]
        self.inner = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, fused=device.type == "cuda")
        self.param_groups = self.inner.param_groups

    def step(self):
        for master, weight in zip(self.masters, self.weights):
            master.grad = weight.grad.float()
        self.torch.nn.utils.clip_grad_norm_(self.masters, CLIP)
        self.inner.step()
        self.inner.zero_grad(set_to_none=True)
        with self.torch.no_grad():
            self.torch._foreach_copy_(self.weights, self.masters)

    def tensors(self):
        return self.masters + [x for state in self.inner.state.values() for x in state.values()]


class Ours:
    def __init__(self, model, master, seed):
        import octet
        self.inner = octet.optim.AdamW(groups_of(model.named_parameters()), lr=LR, betas=BETAS, eps=EPS, state="e4m3+x",
                                       master=master, clip=CLIP, seed=seed)
        self.param_groups, self.step = self.inner.param_groups, self.inner.step

    def tensors(self):
        return [x for state in self.inner.state.values() for x in state.values()]


OPTIMIZERS = {"base": lambda model, device, seed: Base(model, device),
              "remainder": lambda model, device, seed: Ours(model, "bf16_remainder", seed),
              "sr": lambda model, device, seed: Ours(model, "bf16_sr", seed)}


def rate_at(step, steps):
    """Rises over the first twentieth, then falls as a cosine."""
    warm = max(1, round(WARM_SHARE * steps))
    if step < warm:
        return LR * (step + 1) / warm
    done = (step - warm) / max(1, steps - warm)
    return LR * (LAST_SHARE + (1 - LAST_SHARE) * 0.5 * (1 + math.cos(math.pi * done)))


def texts(path, c, device):
    """Training and held out bytes; without a file the sources of Python's own library."""
    import torch
    if path:
        data = Path(path).read_bytes()
        data = lzma.decompress(data) if path.endswith(".xz") else data
    else:
        data = b"".join(file.read_bytes() for file in sorted(Path(json.__file__).resolve().parents[1].glob("*.py")))
    held, least = c.held * (c.seq + 1), 10 * (c.held + c.batch) * (c.seq + 1)
    if len(data) < least:
        sys.exit(f"torch_optimizer_study: expected a text of {least} bytes or more, got {len(data)}")
    tokens = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return tokens[:-held].to(device), tokens[-held:].to(device).view(c.held, c.seq + 1).long()


def allocated(optimizer, device):
    """Bytes now. Differences count: on the CPU those of the optimizer's tensors alone."""
    import torch
    if device.type == "cuda":
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()
    return sum(x.numel() * x.element_size() for x in optimizer.tensors() if x.dim() > 0) if optimizer else 0


def train(name, seed, args, c, data, device):
    """One run: a row of FIELDS."""
    import torch
    train_tokens, held = data
    model = make_model(c, seed, device)
    n = sum(p.numel() for p in model.parameters())
    before = allocated(None, device)
    optimizer = OPTIMIZERS[name](model, device, seed)
    state_bytes = allocated(optimizer, device) - before
    compiled = torch.compile(model) if args.compile else model
    generator = torch.Generator().manual_seed(seed)
    window = torch.arange(c.seq + 1, device=device)
    untimed, begin, first = min(10, args.steps // 2), 0.0, math.inf
    for step in range(args.steps):
        if step == untimed:
            allocated(optimizer, device)
            begin = time.perf_counter()
        at = torch.randint(len(train_tokens) - c.seq, (c.batch, 1), generator=generator).to(device)
        batch = train_tokens[at + window].long()
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, args.steps)
        loss = compiled(batch[:, :-1], batch[:, 1:])
        loss.backward()
        if step == 0:
            before = allocated(optimizer, device)
        optimizer.step()
        if step == 0:
            first = float(loss.detach())
            state_bytes += allocated(optimizer, device) - before
        for p in model.parameters():
            p.grad = None
        if step % 200 == 199:
            print(f"  {name}, seed {seed}, step {step + 1}: loss {float(loss.detach()):.4f}", file=sys.stderr, flush=True)
    allocated(optimizer, device)
    seconds = time.perf_counter() - begin
    with torch.no_grad():
        value = statistics.mean(float(model(rows[:, :-1], rows[:, 1:])) for rows in held.split(max(1, c.batch // 2)))
    if not math.isfinite(value):
        sys.exit(f"torch_optimizer_study: {name}, seed {seed}: expected a finite loss, got {value}")
    if args.steps > 1 and value >= first:
        sys.exit(f"torch_optimizer_study: {name}, seed {seed}: expected a loss below the first step's {first}, got {value}: no row")
    speed = (args.steps - untimed) * c.batch * c.seq / seconds
    return dict(zip(FIELDS, [name, args.config, seed, args.steps, f"{value:.5f}", f"{speed:.0f}", state_bytes,
                             f"{state_bytes / n:.4f}", n]))


def table(rows):
    """Runs paired by their seeds, as Markdown."""
    losses = {(row["optimizer"], int(row["seed"])): float(row["loss"]) for row in rows}
    kinds = [kind for kind in OPTIMIZERS if any(row["optimizer"] == kind for row in rows)]
    lines = ["| optimizer | runs | loss | less base, by seed | mean | spread | bytes a parameter | tokens/s |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for kind in kinds:
        own = [row for row in rows if row["optimizer"] == kind]
        seeds = sorted(int(row["seed"]) for row in own)
        pairs = [losses[kind, seed] - losses["base", seed] for seed in seeds if ("base", seed) in losses]
        is_compared = kind != "base" and pairs
        cells = [kind, str(len(own)), f"{statistics.mean(float(row['loss']) for row in own):.4f}",
                 " ".join(f"{pair:+.4f}" for pair in pairs) if is_compared else "",
                 f"{statistics.mean(pairs):+.4f}" if is_compared else "",
                 f"{statistics.stdev(pairs):.4f}" if is_compared and len(pairs) > 1 else "",
                 f"{statistics.mean(float(row['bytes_per_parameter']) for row in own):.3f}",
                 f"{statistics.median(float(row['tokens_per_s']) for row in own):.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def read_rows(paths):
    rows = []
    for path in paths:
        with open(path, newline="") as file:
            rows += [row for row in csv.DictReader(file, FIELDS) if row["optimizer"] in OPTIMIZERS]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", choices=CONFIGS, default="gpt2-124m")
    parser.add_argument("--steps", type=int, help="of a run (the config's)")
    parser.add_argument("--seeds", default="1,2,3", help="of weights, batches and rounding")
    parser.add_argument("--only", choices=OPTIMIZERS, action="append", help="these optimizers")
    parser.add_argument("--text", help="bytes to train on, .xz too; without it the sources of Python's library")
    parser.add_argument("--device", help="cuda where there is one, else cpu")
    parser.add_argument("--compile", action="store_true", help="compile the model")
    parser.add_argument("--out", help="a file for the lines of CSV, beside the output")
    parser.add_argument("--table", nargs="+", metavar="CSV", help="trains nothing: the table of these files' runs")
    args = parser.parse_args()
    if args.table:
        return print(table(read_rows(args.table)))
    import torch
    c = CONFIGS[args.config]
    args.steps = args.steps or c.steps
    if args.steps < 2:
        sys.exit(f"torch_optimizer_study: expected 2 steps or more, got {args.steps}")
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    data, rows = texts(args.text, c, device), []
    files = [sys.stdout] + ([open(args.out, "w", newline="")] if args.out else [])
    for file in files:
        csv.writer(file).writerow(FIELDS)
    for seed in map(int, args.seeds.split(",")):
        for name in args.only or OPTIMIZERS:
            rows.append(train(name, seed, args, c, data, device))
            for file in files:
                csv.DictWriter(file, FIELDS).writerow(rows[-1])
                file.flush()
            if device.type == "cuda":
                torch.cuda.empty_cache()
    print("\n" + table(rows))


if __name__ == "__main__":
    main()
