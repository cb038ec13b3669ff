#!/usr/bin/env python3
"""Milliseconds and memory of a training step of ViT-L/16 by PyTorch in BF16 under torch.compile, on one GPU.

    tools/vit_baseline.py [--batch 128] [--steps 30]
    octet bench step vitl.yaml --recipes bf16,coat,coat-fast --rounds 8 --device cuda

vitl.yaml, beside it:
    model: {kind: vit, hidden: 1024, layers: 24, heads: 16, ffn: 4096, image_size: 224, patch_size: 16, channels: 3, classes: 1000}
    train: {batch: 128, steps: 30}
    data: {train: [x.safetensors]}

A pre-norm ViT of nn.Linear and scaled_dot_product_attention, fused AdamW, the norm clipped, one batch that is on the card already: its loss falls to
0. A line for f32 weights under autocast, and one for BF16 weights: the median of the steps after the first ten, the allocator's peak, and the first and
the last loss.
"""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

HIDDEN, LAYERS, HEADS, FFN, PATCH, SIDE, CLASSES, STD = 1024, 24, 16, 4096, 16, 224, 1000, 0.02
ACROSS = SIDE // PATCH


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(HIDDEN, eps=1e-12), nn.LayerNorm(HIDDEN, eps=1e-12)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, FFN), nn.Linear(FFN, HIDDEN)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, tokens, 3, HEADS, HIDDEN // HEADS).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, HIDDEN))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(3 * PATCH * PATCH, HIDDEN)
        self.first = nn.Parameter(torch.empty(1, 1, HIDDEN).normal_(std=STD))
        self.positions = nn.Parameter(torch.empty(1, ACROSS * ACROSS + 1, HIDDEN).normal_(std=STD))
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(HIDDEN, eps=1e-12), nn.Linear(HIDDEN, CLASSES)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=STD)
                nn.init.zeros_(module.bias)

    def forward(self, pixels):
        batch = pixels.shape[0]
        x = pixels.view(batch, 3, ACROSS, PATCH, ACROSS, PATCH).permute(0, 2, 4, 1, 3, 5).reshape(batch, ACROSS * ACROSS, -1)
        x = torch.cat([self.first.expand(batch, 1, -1), self.patch(x)], 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


def run(args, autocast):
    torch._dynamo.reset()
    torch.manual_seed(0)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = Vit().cuda() if autocast else Vit().cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05, fused=True)
    random = torch.Generator(device="cuda").manual_seed(1)
    pixels = torch.randn(args.batch, 3, SIDE, SIDE, device="cuda", generator=random, dtype=torch.bfloat16)
    labels = torch.randint(0, CLASSES, (args.batch,), device="cuda", generator=random)

    @torch.compile
    def loss_of(pixels, labels):
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            return F.cross_entropy(model(pixels).float(), labels)

    losses, times = [], []
    for _ in range(args.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = loss_of(pixels, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
        losses.append(loss.item())
    tail = sorted(times[10:])
    print(f"{'autocast' if autocast else 'bf16 weights'}: {tail[len(tail) // 2]:.1f} ms, peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB, "
          f"loss {losses[0]:.4f} -> {losses[-1]:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=30, help="more than ten")
    args = parser.parse_args()
    for autocast in (True, False):
        run(args, autocast)


if __name__ == "__main__":
    main()
