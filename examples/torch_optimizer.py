"""A small PyTorch model trained twice: with torch.optim.AdamW, and with octet.optim.AdamW in its place.

    python examples/torch_optimizer.py [--steps 200]
"""

import argparse

import octet
import torch
from torch import nn


def train(make_optimizer, steps):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).to(torch.bfloat16)
    data = torch.randn(512, 64, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    target = data.roll(1, dims=1).sin()
    optimizer = make_optimizer(model)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(data), target)
        loss.backward()
        optimizer.step()
    states = [t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
    n = sum(p.numel() for p in model.parameters())
    return loss.item(), sum(t.numel() * t.element_size() for t in states) / n


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    rows = {
        "torch.optim.AdamW": lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3),
        "octet.optim.AdamW": lambda model: octet.optim.AdamW(model.named_parameters(), lr=1e-3),
        "octet.optim.AdamW, bf16_sr": lambda model: octet.optim.AdamW(model.named_parameters(), lr=1e-3, master="bf16_sr"),
    }
    for name, make_optimizer in rows.items():
        loss, n_bytes = train(make_optimizer, steps)
        print(f"{name:28} loss {loss:.4f}   {n_bytes:.2f} bytes of state a parameter")


if __name__ == "__main__":
    main()
