#!/usr/bin/env python3
"""Attention of PyTorch in f64, forward and gradients, as attention.json beside this file.

    make_golden.py        needs torch 2.5 or later and numpy

Sixty problems, no list of masks but one range of keys a query: padding, documents, segments, a prefix, none at all.
Operand number n of a problem is value(n, i) of the test: 15 bits of a hash of i. A result is written as two sums, of its
elements times such values and of their magnitudes; of lse only what is finite.
"""
import json
import pathlib

import numpy
import torch

LENGTHS = [(7, 7), (33, 33), (64, 64), (1, 50), (65, 129), (130, 67), (50, 1), (128, 128), (197, 197), (40, 200)]
HEADS = [(1, 1), (2, 2), (4, 2), (3, 1)]
SIZES = [8, 64, 20, 128, 32, 256, 72, 5, 160]
RANGES = ["none", "padding", "documents", "segments", "prefix", "none", "gaps"]
BIASES = [None, "bhq", None, "hq", "b", None, "h", "q", None, "holes", ""]


def value(seed, n):
    mask = numpy.uint64(0xFFFFFFFF)
    x = (numpy.arange(1, n + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B1) + numpy.uint64(seed * 0x85EBCA77)) & mask
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39)):
        x ^= x >> numpy.uint64(shift)
        x = (x * numpy.uint64(factor)) & mask
    x ^= x >> numpy.uint64(15)
    return (x >> numpy.uint64(17)).astype(numpy.float64) / 16384 - 1


def ranges(kind, batch, q_len, kv_len, causal):
    """The first key of each query and the end of those that it sees, [batch, q_len] each, or None."""
    t = numpy.arange(q_len)
    begins, ends = [], []
    for entry in range(batch):
        cuts = [0] + [c for c in (3 + 2 * entry, 4 + 2 * entry, q_len // 2 + entry) if c < q_len] + [q_len]
        part = numpy.searchsorted(cuts, t, side="right") - 1
        first, last = numpy.array(cuts)[part], numpy.array(cuts)[part + 1]
        scaled = [(first * kv_len) // q_len, (last * kv_len + q_len - 1) // q_len]
        if kind == "gaps":  # later queries see nothing, and so do the first
            begins.append(numpy.minimum(t * 2 * kv_len // max(1, q_len), kv_len))
            ends.append(numpy.where(t < 2, 0, kv_len // 2 + 1))
        else:
            begins.append(scaled[0])
            ends.append({"padding": numpy.full(q_len, kv_len * (2 - entry) // 3),
                         "prefix": numpy.maximum(kv_len // 3, numpy.clip(t + 1 + kv_len - q_len, 0, kv_len))}
                        .get(kind, scaled[1]))
    begins, ends = numpy.stack(begins), numpy.stack(ends)
    return {"none": (None, None), "padding": (None, ends), "documents": (begins, None), "prefix": (None, ends)}.get(
        kind, (begins, ends))


def runs(array):
    """Values and how often they stand side by side."""
    if array is None:
        return None
    out = []
    for x in array.reshape(-1).tolist():
        if out and out[-1][0] == x:
            out[-1][1] += 1
        else:
            out.append([x, 1])
    return out


def seen_keys(case, begins, ends):
    q_len, kv_len, window = case["q_len"], case["kv_len"], case["window"]
    place = numpy.arange(q_len)[:, None] + kv_len - q_len
    key = numpy.arange(kv_len)[None, :]
    seen = numpy.ones((case["batch"], q_len, kv_len), bool)
    if case["mask"] == "causal":
        seen &= key <= place
    elif window:
        seen &= key < place + window
    if window:
        seen &= key > place - window
    if begins is not None:
        seen &= key >= begins[:, :, None]
    if ends is not None:
        seen &= key < ends[:, :, None]
    return torch.from_numpy(seen)[:, None]


def run(case, begins, ends):
    b, tq, tk, h, hk, d = (case[k] for k in ("batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim"))

    def heads(seed, length, n):
        x = torch.from_numpy(value(seed, b * length * n * d)).reshape(b, length, n, d).transpose(1, 2)
        return x.clone().requires_grad_()

    q, k, v = heads(0, tq, h), heads(1, tk, hk), heads(2, tk, hk)
    dout = heads(3, tq, h).detach()
    wide_k, wide_v = k.repeat_interleave(h // hk, 1), v.repeat_interleave(h // hk, 1)
    seen = seen_keys(case, begins, ends).expand(b, h, tq, tk)
    added = torch.zeros(b, h, tq, tk, dtype=torch.float64)
    bias = None
    if case["bias"] is not None:
        bias = torch.from_numpy(value(4, int(numpy.prod(case["bias"])))).reshape(case["bias"]).clone().requires_grad_()
        added = bias
        if case["holes"]:
            hidden = torch.from_numpy(value(5, bias.numel())).reshape(bias.shape) > 0.5
            added = torch.where(hidden, -torch.inf, bias)
            seen = seen & ~hidden
    any_seen = seen.any(-1, keepdim=True)
    mask = torch.where(seen | ~any_seen, added.expand(b, h, tq, tk).nan_to_num(neginf=0), -torch.inf)
    o = torch.nn.functional.scaled_dot_product_attention(q, wide_k, wide_v, attn_mask=mask, scale=case["scale"])
    o = torch.where(any_seen, o, 0)
    lse = torch.logsumexp(torch.where(seen, q.detach() @ wide_k.detach().transpose(2, 3) * case["scale"] + mask, -torch.inf), -1)
    (o * dout).sum().backward()
    results = {"o": o.detach(), "dq": q.grad, "dk": k.grad, "dv": v.grad}
    results = {name: x.transpose(1, 2) for name, x in results.items()}
    results["lse"] = lse.detach()
    if bias is not None:
        results["dbias"] = bias.grad
    sums = {}
    for name, x in results.items():
        x = x.reshape(-1).numpy()
        x = numpy.where(numpy.isfinite(x), x, 0)
        sums[name] = [float((x * value(9, x.size)).sum()), float(numpy.abs(x).sum())]
    return sums


def main():
    cases = []
    for i in range(60):
        q_len, kv_len = LENGTHS[i % len(LENGTHS)]
        heads, kv_heads = HEADS[(i + i // 10) % len(HEADS)]
        d = SIZES[(i + i // 9) % len(SIZES)]
        kind, bias = RANGES[(i + i // 14) % len(RANGES)], BIASES[(i + i // 22) % len(BIASES)]
        batch = 1 if q_len * kv_len > 16000 and i % 2 else 2
        shape = None
        if bias is not None:
            flags = "bhq" if bias == "holes" else bias
            shape = [batch if "b" in flags else 1, heads if "h" in flags else 1, q_len if "q" in flags else 1, kv_len]
        case = {"batch": batch, "q_len": q_len, "kv_len": kv_len, "heads": heads, "kv_heads": kv_heads, "head_dim": d,
                "scale": 1.0 if i % 7 == 3 else d ** -0.5, "mask": "causal" if (i // 3) % 2 else "full",
                "window": [0, 0, 0, 5, 0, 64][(i + i // 12) % 6], "bias": shape, "holes": bias == "holes"}
        begins, ends = ranges(kind, batch, q_len, kv_len, case["mask"] == "causal")
        cases.append({**case, "begins": runs(begins), "ends": runs(ends), "sums": run(case, begins, ends)})
    lines = ",\n".join(json.dumps(case) for case in cases)
    pathlib.Path(__file__).with_name("attention.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
