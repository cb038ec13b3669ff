#!/usr/bin/env python3
"""Memory, step time and loss of octet.torch.coat beside BF16 and torchao's float8, each in transformers. Needs a GPU.

The shape is Qwen2.5-1.5B's with random weights (--layers and --hidden make it smaller), rows are --seq tokens of --data, the bytes
of a text or 32-bit ids (.ids). Systems take turns of --turn steps; each trains its own weights on the same rows with
octet.optim.AdamW. "kept" is what is allocated behind the forward pass, logits too, "peak" the most in forward and backward, both beyond
what was allocated before. --regional compiles a layer, and the head with the loss, instead of the whole model: it starts sooner.
--octet PROGRAM also trains the same start on the same rows by `octet train` (--recipe, the optimizer's states and masters) when
the others have given their memory back; its rows predict one token more each, the next row's first.

Usage: torch_models.py --data FILE [--systems bf16,coat,coat-compiled,float8] [--octet PROGRAM] [--steps N] [--csv FILE]
"""
import argparse
import copy
import csv
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import octet.torch
import torch
import transformers

SYSTEMS = ("bf16", "bf16-eager", "coat", "coat-compiled", "float8")
COLUMNS = ["system", "steps", "kept_bytes", "peak_bytes", "step_ms", "loss_first", "loss_last_20", "start_s"]


def config(options):
    heads = max(options.hidden // 128, 1)
    return transformers.Qwen2Config(
        hidden_size=options.hidden, intermediate_size=options.hidden * 35 // 6, num_hidden_layers=options.layers,
        num_attention_heads=heads, num_key_value_heads=2 if heads % 2 == 0 else 1, vocab_size=options.vocab, rms_norm_eps=1e-6,
        max_position_embeddings=32768, rope_parameters={"rope_type": "default", "rope_theta": 1e6}, tie_word_embeddings=True,
        use_cache=False)


def rows_of(options):
    if options.data.endswith(".ids"):
        ids = np.fromfile(options.data, np.uint32).astype(np.int64)
    else:
        ids = np.fromfile(options.data, np.uint8).astype(np.int64)
    n = len(ids) // options.seq
    return torch.from_numpy(ids[: n * options.seq].reshape(n, options.seq))


class System:
    """A model with its optimizer and what was seen of it."""

    def __init__(self, name, model, options):
        self.name, self.options, self.device = name, options, torch.device(options.device)
        self.model, self.losses, self.times, self.kept, self.peak = model, [], [], 0, 0
        began = time.perf_counter()
        if name.startswith("coat"):
            octet.torch.coat(model, options.recipe)
        elif name == "float8":
            from torchao.float8 import convert_to_float8_training
            convert_to_float8_training(model, module_filter_fn=lambda module, name: "lm_head" not in name)
        self.is_compiled = name in ("bf16", "coat-compiled", "float8")
        self.call = torch.compile(model) if self.is_compiled and not options.regional else model
        if self.is_compiled and options.regional:
            for layer in model.model.layers:
                layer.compile()
            self.head = torch.compile(self.head)
        self.optimizer = octet.optim.AdamW(octet.optim.parameter_groups(model, weight_decay=0.1), lr=options.lr, betas=(0.9, 0.95),
                                           clip=1.0, seed=options.seed)
        self.loss(self.batch(0)).backward()  # compiles
        self.optimizer.zero_grad()
        self.sync()
        self.start_s = time.perf_counter() - began

    def sync(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def allocated(self, peak=False):
        if self.device.type != "cuda":
            return 0
        return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()

    def batch(self, i):
        rows, n = self.options.rows, self.options.batch
        return rows[torch.arange(i * n, (i + 1) * n) % len(rows)].to(self.device, non_blocking=True)

    def loss(self, ids):
        if not self.options.regional:
            return self.call(input_ids=ids, labels=ids).loss
        return self.head(self.model.model(input_ids=ids).last_hidden_state, ids)

    def head(self, x, ids):
        logits = self.model.lm_head(x)
        return torch.nn.functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten())

    def step(self, i):
        ids = self.batch(i)
        loss = self.loss(ids)
        loss.backward()
        self.losses.append(loss.detach())
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.lr * min(1.0, (i + 1) / self.options.warmup)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def measure_memory(self):
        """Of forward and backward alone, with nothing else alive."""
        self.sync()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        before, ids = self.allocated(), self.batch(0)
        loss = self.loss(ids)
        self.kept = self.allocated() - before
        loss.backward()
        self.sync()
        self.peak = self.allocated(peak=True) - before
        self.optimizer.zero_grad()

    def turn(self, first, n):
        self.sync()
        for i in range(first, first + n):
            began = time.perf_counter()
            self.step(i)
            self.sync()
            self.times.append(1e3 * (time.perf_counter() - began))

    def row(self):
        losses = [loss.item() for loss in self.losses]
        return [self.name, len(losses), self.kept, self.peak, round(statistics.median(self.times), 2), round(losses[0], 4),
                round(statistics.mean(losses[-20:]), 4), round(self.start_s, 1)]


def octet_row(folder, options):
    """A row of `octet train`, which begins with the model in folder/start and reads the ids as a token shard, in order."""
    ids, out = folder / "rows.bin", folder / "run"
    options.rows.numpy().astype(np.uint32).tofile(ids)
    keys = {
        "data.train": [str(ids)], "data.token_bytes": 4, "data.sampling": "sequential", "data.val_fraction": 0, "recipe": options.recipe,
        "model.seq": options.seq, "train.batch": options.batch, "train.steps": options.steps, "train.seed": options.seed,
        "train.eval_every": 0, "train.save_every": 0,
        "optim.lr": options.lr, "optim.schedule": "constant", "optim.warmup": min(options.warmup, options.steps), "optim.betas": [0.9, 0.95],
        "optim.weight_decay": 0.1, "optim.clip": 1.0, "optim.state_m": "e4m3+x", "optim.state_v": "e4m3+x", "optim.master": "bf16_remainder"}
    sets = [part for key, value in keys.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    began = time.perf_counter()
    ran = subprocess.run([options.octet, "train", "--model", str(folder / "start"), "--data", str(ids), "--device", options.device, "--set",
                          f"out={json.dumps(str(out))}", *sets], capture_output=True, text=True)
    if ran.returncode != 0:
        print(f"octet: {ran.stderr[-2000:]}", flush=True)
        return None
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if "loss" in row]
    times = [1e3 * row["labels"] / row["tokens_per_s"] for row in rows[1:]]
    whole = time.perf_counter() - began
    return ["octet", len(rows), "", "", round(statistics.median(times), 2), round(rows[0]["loss"], 4),
            round(statistics.mean(row["loss"] for row in rows[-20:]), 4), round(whole - sum(times) / 1e3, 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--systems", default="bf16,coat,coat-compiled,float8")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--recipe", default="coat")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--turn", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the weights and of rounding; the rows are the same")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--hidden", type=int, default=1536)
    parser.add_argument("--vocab", type=int, default=151936)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seconds", type=float, default=1e9, help="no turn begins after them, no system after 0.6 of them")
    parser.add_argument("--autotune", action="store_true", help="torch.backends.cudnn.benchmark: octet times its products")
    parser.add_argument("--regional", action="store_true")
    parser.add_argument("--octet", metavar="PROGRAM", help="of Octet, which trains the same start, too")
    parser.add_argument("--csv")
    options = parser.parse_args()
    names = options.systems.split(",")
    for name in names:
        if name not in SYSTEMS:
            sys.exit(f"torch_models: expected systems of {' '.join(SYSTEMS)}, got {name}")
    began = time.perf_counter()
    torch.backends.cudnn.benchmark = options.autotune
    torch.set_float32_matmul_precision("high")
    options.rows = rows_of(options)
    torch.manual_seed(options.seed)
    with torch.device(options.device):
        model = transformers.Qwen2ForCausalLM(config(options)).to(torch.bfloat16)
    systems = []
    for name in names:
        if time.perf_counter() - began > 0.6 * options.seconds:
            print(f"{name}: left out, no time", flush=True)
            continue
        try:
            systems.append(System(name, copy.deepcopy(model), options))
            systems[-1].measure_memory()
            print(f"{name}: starts in {systems[-1].start_s:.1f} s", flush=True)
        except Exception as error:  # the others go on
            print(f"{name}: {type(error).__name__}: {str(error)[:2000]}", flush=True)
    for first in range(0, options.steps, options.turn):
        if time.perf_counter() - began > options.seconds:
            break
        for system in systems:
            system.turn(first, options.turn)
    table = [COLUMNS, *(system.row() for system in systems)]
    if options.octet:
        systems.clear()
        if options.device == "cuda":
            torch.cuda.empty_cache()
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder + "/start")
            row = octet_row(pathlib.Path(folder), options)
        table += [row] if row else []
    for row in table:
        print(" ".join(f"{str(value):>14}" for value in row), flush=True)
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(table)


if __name__ == "__main__":
    main()
