#!/usr/bin/env python3
"""SGD of PyTorch, and Muon and LAMB by their definitions in f64, as rules.json beside this file.

    make_rules_golden.py        needs torch 2.9 or later and numpy; prints how near PyTorch's own Muon is

Weights and gradients are formulas that the test computes again: w[i] = cos(0.7 i), and at step t from 1 on
g[i] = sin(0.37 (i + 1)^2 t) / 2, both rounded to f32.
"""
import itertools
import json
import pathlib

import numpy
import torch


def weights(n):
    return numpy.cos(0.7 * numpy.arange(n)).astype(numpy.float32)


def gradient(n, t):
    return (numpy.sin(0.37 * (numpy.arange(n) + 1.0) ** 2 * t) / 2).astype(numpy.float32)


def sgd_cases(n=96, steps=50, lr=0.05):
    for momentum, dampening, nesterov, decay in itertools.product((0, 0.9), (0, 0.1), (False, True), (0, 0.01)):
        if nesterov and (momentum == 0 or dampening != 0):
            continue
        parameter = torch.nn.Parameter(torch.from_numpy(weights(n)))
        optimizer = torch.optim.SGD([parameter], lr=lr, momentum=momentum, dampening=dampening, nesterov=nesterov,
                                    weight_decay=decay)
        for t in range(1, steps + 1):
            parameter.grad = torch.from_numpy(gradient(n, t))
            optimizer.step()
        yield {"momentum": momentum, "dampening": dampening, "nesterov": nesterov, "weight_decay": decay, "lr": lr,
               "steps": steps, "n": n, "weights": [float(f"{x:.9g}") for x in parameter.detach()]}


def orthogonal(u):
    """Five Newton-Schulz steps, as Muon's authors have them."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = u.T if u.shape[0] > u.shape[1] else u
    x = x / max(numpy.linalg.norm(x), 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if u.shape[0] > u.shape[1] else x


def muon_cases(steps=10, lr=0.02, momentum=0.95, decay=0.1):
    for (rows, cols), nesterov, match in itertools.product(((16, 16), (24, 16), (16, 40), (1, 8), (65, 33)), (True, False),
                                                           (True, False)):
        n = rows * cols
        w, m = weights(n).astype(numpy.float64).reshape(rows, cols), numpy.zeros((rows, cols))
        factor = 0.2 * max(rows, cols) ** 0.5 if match else max(1, rows / cols) ** 0.5
        for t in range(1, steps + 1):
            g = gradient(n, t).astype(numpy.float64).reshape(rows, cols)
            m = momentum * m + g
            u = g + momentum * m if nesterov else m
            w = w - lr * (factor * orthogonal(u) + decay * w)
        yield {"rows": rows, "cols": cols, "nesterov": nesterov, "match_adamw": match, "momentum": momentum, "lr": lr,
               "weight_decay": decay, "steps": steps, "weights": [float(f"{x:.6g}") for x in w.reshape(-1)]}


def lamb_cases(n=96, steps=20, lr=0.02, betas=(0.9, 0.99), eps=1e-6):
    """Algorithm 2 of You et al. 2020, with bias corrections."""
    for decay in (0, 0.1):
        w, m, v = weights(n).astype(numpy.float64), numpy.zeros(n), numpy.zeros(n)
        for t in range(1, steps + 1):
            g = gradient(n, t).astype(numpy.float64)
            m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
            r = m / (1 - betas[0] ** t) / (numpy.sqrt(v / (1 - betas[1] ** t)) + eps) + decay * w
            w = w - lr * numpy.linalg.norm(w) / numpy.linalg.norm(r) * r
        yield {"n": n, "betas": betas, "eps": eps, "lr": lr, "weight_decay": decay, "steps": steps,
               "weights": [float(f"{x:.9g}") for x in w]}


def pytorch_distance(case):
    """How far PyTorch's Muon, which multiplies in BF16 too, ends from the definition, of the way that the weights went."""
    n, shape = case["rows"] * case["cols"], (case["rows"], case["cols"])
    parameter = torch.nn.Parameter(torch.from_numpy(weights(n)).reshape(shape))
    optimizer = torch.optim.Muon([parameter], lr=case["lr"], momentum=case["momentum"], weight_decay=case["weight_decay"],
                                 nesterov=case["nesterov"],
                                 adjust_lr_fn="match_rms_adamw" if case["match_adamw"] else "original")
    for t in range(1, case["steps"] + 1):
        parameter.grad = torch.from_numpy(gradient(n, t)).reshape(shape)
        optimizer.step()
    want = numpy.array(case["weights"])
    way = want - weights(n)
    return numpy.linalg.norm(parameter.detach().numpy().reshape(-1) - want) / numpy.linalg.norm(way)


def main():
    found = {"sgd": list(sgd_cases()), "muon": list(muon_cases()), "lamb": list(lamb_cases())}
    path = pathlib.Path(__file__).with_name("rules.json")
    path.write_text(json.dumps(found, separators=(",", ":")) + "\n")
    print(f"PyTorch's Muon is within {max(map(pytorch_distance, found['muon'])):.4f} of its definition")


if __name__ == "__main__":
    main()
