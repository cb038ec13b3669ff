#!/usr/bin/env python3
"""Rows of PyTorch beside those of `octet bench record`: seconds and joules to a validation loss.

The model, the text, the schedule, the optimizer and the test of the loss are those of
recipes/llama-124m.yaml and of the command: byte tokens, random windows, AdamW on f32 weights with
products in BF16 (autocast), torch.compile, fused optimizer, PyTorch's own attention. "bf16" is that;
"float8" replaces the layers' linears by torchao's (tensorwise, its default). Compiling happens
before the clock starts, on steps that are taken back. Rows are added to the CSV file.

Usage: torch_record.py --train FILE --val FILE --loss X [--recipes bf16,float8] [--csv FILE]
                       [--steps N] [--batch N] [--every N] [--lr X] [--device cuda|cpu]
"""
import argparse
import copy
import csv
import ctypes
import lzma
import math
import os
import time

import torch
import torch.nn.functional as F
from torch import nn

COLUMNS = ["system", "recipe", "device", "parameters", "tokens_a_step", "loss_asked", "loss", "steps",
           "seconds", "joules", "tokens_per_s", "memory_bytes", "start_s"]
HIDDEN, LAYERS, HEADS, FFN, VOCAB, SEQ = 768, 12, 12, 2048, 256, 1024
EVAL_BYTES = 131072


class Energy:
    """NVML's total of the host's only GPU; None where there are several, or none."""

    def __init__(self):
        self.device = None
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        count, device = ctypes.c_uint(), ctypes.c_void_p()
        if self.nvml.nvmlInit_v2() or self.nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return
        if count.value == 1 and not self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
            self.device = device

    def joules(self):
        total = ctypes.c_ulonglong()
        if self.device is None or self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.device, ctypes.byref(total)):
            return math.nan
        return total.value / 1e3


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))

    def forward(self, x, cos, sin):
        def heads(t):
            return t.view(*t.shape[:2], HEADS, -1).transpose(1, 2)

        def turn(t):
            low, high = t.chunk(2, -1)
            return (t * cos + torch.cat([-high, low], -1) * sin).to(t.dtype)
        q, k, v = turn(heads(self.q(x))), turn(heads(self.k(x))), heads(self.v(x))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(x.shape))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN, eps=1e-5), nn.RMSNorm(HIDDEN, eps=1e-5)
        self.gate, self.up = nn.Linear(HIDDEN, FFN, bias=False), nn.Linear(HIDDEN, FFN, bias=False)
        self.down = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, eps=1e-5)
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)
        size = HIDDEN // HEADS
        angles = torch.outer(torch.arange(SEQ), 10000.0 ** (-torch.arange(0, size, 2) / size)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.cross_entropy(self.lm_head(self.norm(x)).float().flatten(0, 1), labels.flatten())


def read_bytes(path, device):
    with (lzma.open if path.endswith(".xz") else open)(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).to(device)


class Trial:
    def __init__(self, recipe, args):
        torch.manual_seed(1)
        self.args = args
        self.model = Llama().to(args.device)
        if recipe == "float8":
            from torchao.float8 import convert_to_float8_training
            convert_to_float8_training(self.model, module_filter_fn=lambda module, name: "lm_head" not in name)
        self.run = torch.compile(self.model)
        decays = [p for p in self.model.parameters() if p.dim() == 2]
        rest = [p for p in self.model.parameters() if p.dim() != 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": decays, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
            lr=args.lr, betas=(0.9, 0.95), eps=1e-8, fused=args.device == "cuda")

    def loss(self, rows):
        with torch.autocast(self.args.device, dtype=torch.bfloat16):
            return self.run(rows[:, :-1], rows[:, 1:])

    def rate(self, step):
        args, warmup = self.args, 100
        if step <= warmup:
            return args.lr * step / warmup
        share = (step - warmup) / max(args.steps - warmup, 1)
        return args.lr * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * share)))

    def step(self, index, text):
        at = torch.randint(len(text) - SEQ, (self.args.batch, 1), device=text.device)
        rows = text[at + torch.arange(SEQ + 1, device=text.device)].long()
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(index)
        self.loss(rows).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    @torch.no_grad()
    def evaluate(self, text):
        n = (min(len(text), EVAL_BYTES) - 1) // SEQ
        rows = text[torch.arange(n, device=text.device)[:, None] * SEQ + torch.arange(SEQ + 1, device=text.device)].long()
        losses = [self.loss(part).double() * len(part) for part in rows.split(self.args.batch)]
        return (sum(losses) / n).item()


def measure(recipe, args, train, val, energy):
    begin, is_gpu = time.perf_counter(), args.device == "cuda"
    trial = Trial(recipe, args)
    model, optimizer = copy.deepcopy(trial.model.state_dict()), copy.deepcopy(trial.optimizer.state_dict())
    for _ in range(2):
        trial.step(1, train)
    trial.evaluate(val)
    trial.model.load_state_dict(model)
    trial.optimizer.load_state_dict(optimizer)
    if is_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start, seconds, joules, done, loss = time.perf_counter() - begin, 0.0, 0.0, 0, math.inf
    while done < args.steps and loss > args.loss:
        joules_before, before = energy.joules(), time.perf_counter()
        to = min(done + args.every, args.steps)
        for index in range(done, to):
            trial.step(index + 1, train)
        if is_gpu:
            torch.cuda.synchronize()
        seconds += time.perf_counter() - before
        joules += energy.joules() - joules_before
        done, loss = to, trial.evaluate(val)
        print(f"torch {recipe}: step {done}/{args.steps}  validation loss {loss:.4f}  {seconds:.1f} s", flush=True)
    tokens = args.batch * SEQ
    return [f"torch {torch.__version__}" + (" torchao" if recipe == "float8" else ""), recipe,
            torch.cuda.get_device_name() if is_gpu else "cpu", sum(p.numel() for p in trial.model.parameters()), tokens, args.loss,
            f"{loss:.4f}", done, f"{seconds:.2f}" if loss <= args.loss else "not reached",
            "not counted" if math.isnan(joules) else f"{joules:.0f}", f"{tokens * done / seconds:.0f}",
            torch.cuda.max_memory_allocated() if is_gpu else 0, f"{start:.2f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True)
    parser.add_argument("--val", required=True)
    parser.add_argument("--loss", type=float, required=True)
    parser.add_argument("--recipes", default="bf16,float8")
    parser.add_argument("--csv")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: to try the script")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    train, val, energy = read_bytes(args.train, args.device), read_bytes(args.val, args.device), Energy()
    for recipe in args.recipes.split(","):
        row = measure(recipe, args, train, val, energy)
        print(",".join(map(str, row)))
        if args.csv:
            is_new = not os.path.exists(args.csv)
            with open(args.csv, "a", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows(([COLUMNS] if is_new else []) + [row])


if __name__ == "__main__":
    main()
