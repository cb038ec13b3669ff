#!/usr/bin/env python3
"""Tokens a second and a GPU of FSDP2 + torchao's FP8 (tensorwise) on the Llama-2-7B shape, and the loss beside them.

  [torchrun --nproc-per-node N] tools/torch_ranks.py TEXT [--batch 8] [--seq 2048] [--steps 12] [--layers 32] [--stage 3]

One process trains alone, without FSDP2; several shard parameters, gradients and states (--stage 3), or keep gathered parameters
until the backward pass (--stage 2), and gather FP8 data with scales found once a step. BF16 parameters, gradients and fused AdamW
states, no master copy; each layer compiled; clipped by the global norm. TEXT is read as bytes, another part by each rank.
Rank 0 prints one JSON line: median ms of the steps behind the fourth, tokens/s a GPU, the largest GiB allocated, losses. A figure
to compare with; needs torchao, no part of the tests.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torchao.float8 import Float8LinearConfig, convert_to_float8_training, precompute_float8_dynamic_scale_for_fsdp

HIDDEN, FFN, HEADS, VOCAB = 4096, 11008, 32, 32000


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN, 1e-5), nn.RMSNorm(HIDDEN, 1e-5)
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(HIDDEN, FFN, bias=False), nn.Linear(HIDDEN, FFN, bias=False)
        self.down = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape

        def rotated(t):
            left, right = t.chunk(2, -1)
            return t * cos + torch.cat([-right, left], -1) * sin

        h = self.norm1(x)
        q, k, v = (linear(h).view(b, s, HEADS, -1).transpose(1, 2) for linear in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, s, HIDDEN))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, n_layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(n_layers))
        self.norm, self.head = nn.RMSNorm(HIDDEN, 1e-5), nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens, labels, cos, sin):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), labels.flatten())


def rotations(seq, device):
    dim = HIDDEN // HEADS
    angles = torch.outer(torch.arange(seq), 10000 ** (-torch.arange(0, dim, 2) / dim)).repeat(1, 2)
    return angles.cos().to(device, torch.bfloat16), angles.sin().to(device, torch.bfloat16)


def sharded(model, stage):
    keep = stage == 2
    for layer in model.layers:
        fully_shard(layer, reshard_after_forward=not keep)
    fully_shard(model, reshard_after_forward=not keep)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    for name, default in (("batch", 8), ("seq", 2048), ("steps", 12), ("layers", 32), ("stage", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    if ranks > 1:
        dist.init_process_group("nccl", device_id=device)
    with torch.device("meta"):
        model = Model(args.layers).bfloat16()
    config = Float8LinearConfig(enable_fsdp_float8_all_gather=ranks > 1)
    convert_to_float8_training(model, config=config, module_filter_fn=lambda module, name: "head" not in name)
    for layer in model.layers:
        layer.compile()
    if ranks > 1:
        sharded(model, args.stage)
    model.to_empty(device=device)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.02) if parameter.dim() == 2 else parameter.fill_(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    with open(args.text, "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    cos, sin = rotations(args.seq, device)
    generator = torch.Generator().manual_seed(rank)
    times, losses = [], []
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-4 * min(1, (step + 1) / 5)
        starts = torch.randint(len(data) - args.seq - 1, (args.batch,), generator=generator)
        rows = torch.stack([data[i : i + args.seq + 1] for i in starts.tolist()]).to(device, torch.int64)
        torch.cuda.synchronize()
        began = time.perf_counter()
        loss = model(rows[:, :-1], rows[:, 1:], cos, sin)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if ranks > 1:
            precompute_float8_dynamic_scale_for_fsdp(model)
            dist.all_reduce(loss.detach(), dist.ReduceOp.AVG)
        losses.append(loss.item())
        times.append(time.perf_counter() - began)
    seconds = statistics.median(times[4:])
    if rank == 0:
        print(json.dumps({"ranks": ranks, "stage": args.stage if ranks > 1 else None, "batch": args.batch, "ms": round(seconds * 1e3, 1),
                          "tokens_per_s_per_gpu": round(args.batch * args.seq / seconds),
                          "gib": round(torch.cuda.max_memory_allocated() / 2**30, 1),
                          "first_loss": round(losses[0], 3), "loss": round(losses[-1], 3),
                          "gpu": torch.cuda.get_device_name()}))
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
