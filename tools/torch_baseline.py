#!/usr/bin/python3
"""Tokens a second of a PyTorch training step of the 25M model on this CPU, as JSON.

Hidden 512, 8 layers, 8 heads, ffn 1408, vocab 256 untied, 8 sequences a step: forward, backward,
clipping by the global norm and AdamW. f32, and f32 weights under BF16 autocast. A figure to compare
with, no part of the tests. Where PyTorch was built with the reference BLAS ("blas": "generic", as
Debian's is) its f32 products are not worth comparing with; BF16 ones go through oneDNN in any case.

With --octet PROGRAM the two take turns, --rounds times: PyTorch's BF16 step, then the bench of the
program's recipes at the same sizes and threads. "ratio" is how many times as many tokens a second
the program makes, by the medians.

Usage: /usr/bin/python3 tools/torch_baseline.py [--threads N] [--seq N] [--steps N] [--warmup N]
                                                [--octet PROGRAM [--recipes NAMES] [--rounds N]]
"""
import argparse
import contextlib
import json
import re
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F

import make_goldens

SHAPE = {**make_goldens.TINY, "kind": "llama", "hidden": 512, "layers": 8, "heads": 8,
         "kv_heads": 8, "head_dim": 64, "ffn": 1408, "vocab": 256, "batch": 8, "seq": 256}
STD = 0.02


def make_parameters(generator):
    return {name: torch.nn.Parameter(torch.randn(shape, generator=generator) * STD
                                     if len(shape) == 2 else torch.ones(shape))
            for name, shape in make_goldens.parameter_shapes(SHAPE).items()}


def make_optimizer(parameters):
    decays = [p for n, p in parameters.items() if make_goldens.decays(n, p.shape)]
    rest = [p for n, p in parameters.items() if not make_goldens.decays(n, p.shape)]
    return torch.optim.AdamW([{"params": decays, "weight_decay": 0.1},
                              {"params": rest, "weight_decay": 0.0}],
                             lr=1e-3, betas=(0.9, 0.95), eps=1e-8)


def train_step(parameters, optimizer, generator, bf16):
    n_rows = SHAPE["batch"] * SHAPE["seq"]
    tokens = torch.randint(SHAPE["vocab"], (n_rows,), generator=generator)
    labels = torch.randint(SHAPE["vocab"], (n_rows,), generator=generator)
    cast = torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else contextlib.nullcontext()
    with cast:
        logits = make_goldens.rotary_decoder(parameters, tokens, SHAPE)
    loss = F.cross_entropy(logits.float(), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
    optimizer.step()
    return loss.item()


def measure(name, args):
    generator = torch.Generator().manual_seed(1)
    parameters = make_parameters(generator)
    optimizer = make_optimizer(parameters)
    times, loss = [], 0.0
    for step in range(args.warmup + args.steps):
        start = time.perf_counter()
        loss = train_step(parameters, optimizer, generator, bf16=name == "bf16")
        if step >= args.warmup:
            times.append(time.perf_counter() - start)
    seconds = statistics.median(times)
    return {"name": name, "step_ms": round(seconds * 1e3, 1), "last_loss": round(loss, 4),
            "tokens_per_s": round(SHAPE["batch"] * SHAPE["seq"] / seconds, 1)}


def bench_octet(args):
    """Tokens a second by recipe, measured by the program."""
    command = [args.octet, "bench", "step", "--json", "--quiet", "--recipes", args.recipes,
               "--rounds", str(args.steps), "--threads", str(args.threads),
               "--set", f"model.seq={SHAPE['seq']}", "--set", f"train.batch={SHAPE['batch']}"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {row["name"].removeprefix("step "): row["value"]
            for row in rows if row["unit"] == "tokens/s"}


def compare(args):
    torch_speeds, octet_speeds = [], {}
    for _ in range(args.rounds):
        torch_speeds.append(measure("bf16", args)["tokens_per_s"])
        for recipe, speed in bench_octet(args).items():
            octet_speeds.setdefault(recipe, []).append(speed)
    baseline = statistics.median(torch_speeds)
    rows = [{"name": "torch bf16", "tokens_per_s": baseline, "ratio": 1.0}]
    for recipe, speeds in octet_speeds.items():
        speed = statistics.median(speeds)
        rows.append({"name": f"octet {recipe}", "tokens_per_s": round(speed, 1),
                     "ratio": round(speed / baseline, 2)})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--seq", type=int, default=SHAPE["seq"])
    parser.add_argument("--octet", help="program to compare with")
    parser.add_argument("--recipes", default="bf16")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    SHAPE["seq"] = args.seq
    torch.set_num_threads(args.threads)
    params = sum(torch.Size(s).numel() for s in make_goldens.parameter_shapes(SHAPE).values())
    rows = compare(args) if args.octet else [measure(name, args) for name in ("f32", "bf16")]
    blas = re.findall(r"BLAS_INFO=(\w+)", torch.__config__.show())
    print(json.dumps({"torch": torch.__version__, "blas": blas[0] if blas else "unknown",
                      "threads": args.threads, "seq": args.seq, "params": params, "rows": rows}))


if __name__ == "__main__":
    main()
