#!/usr/bin/env python3
"""Writes tests/fixtures/unit_scaling.json: factors, learning rates, a loss and gradients of the Python package unit-scaling
(0.3.5; with PyTorch on a CPU), which tests/property/scalify/unit_scaling_test.cpp compares with ours.

    tools/make_unit_scaling_golden.py [OUT]

The model is a Llama of the package's functions: its own decoder has no rotary positions and one matrix for q, k and v.
"""

import json
import math
import sys

import torch
import unit_scaling
import unit_scaling.functional as U
from unit_scaling.constraints import apply_constraint
from unit_scaling.core.functional import logarithmic_interpolation, transformer_residual_scaling_rule
from unit_scaling.optim import lr_scale_func_adam

HIDDEN, LAYERS, HEADS, FFN, VOCAB, BATCH, SEQ = 16, 2, 2, 24, 19, 2, 6
EPS, THETA = 1e-5, 10000.0


def weight(name, shape):
    """As weights_of of tests/golden/drawn_weights.h has it, of matrices times 7: a variance near 1."""
    count, values = math.prod(shape), []
    for i in range(count):
        number = (i * 7919 + i * i * 31 + len(name) * 104729) % 2003 - 1001
        values.append(number / 4004 * 7 if len(shape) > 1 else number / 4004 + 0.5)
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def parameters():
    """Name, shape, the package's kind, and whether it stands in a layer."""
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN), "weight", False
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (HIDDEN,), "norm", True
        for one in "qkvo":
            yield f"{at}self_attn.{one}_proj.weight", (HIDDEN, HIDDEN), "weight", True
        yield at + "post_attention_layernorm.weight", (HIDDEN,), "norm", True
        for one, shape in (("gate", (FFN, HIDDEN)), ("up", (FFN, HIDDEN)), ("down", (HIDDEN, FFN))):
            yield f"{at}mlp.{one}_proj.weight", shape, "weight", True
    yield "model.norm.weight", (HIDDEN,), "norm", False
    yield "lm_head.weight", (VOCAB, HIDDEN), "output", False


def rotated(x):
    """x [batch, heads, seq, width], by halves."""
    half = x.shape[-1] // 2
    angles = torch.arange(SEQ)[:, None] * THETA ** (-torch.arange(half, dtype=torch.float64) / half)
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def forward(w, tokens):
    """Logits [BATCH * SEQ, VOCAB]."""
    tau = transformer_residual_scaling_rule()
    x = U.embedding(tokens, w["model.embed_tokens.weight"])

    def norm(y, name):
        return U.rms_norm(y, (HIDDEN,), w[name], EPS)

    def heads(y):
        return y.reshape(BATCH, SEQ, HEADS, -1).transpose(1, 2)

    for i in range(LAYERS):
        at = f"model.layers.{i}."
        y, skip = U.residual_split(x, tau(2 * i, 2 * LAYERS))
        y = norm(y, at + "input_layernorm.weight")
        q, k, v = (heads(U.linear(y, w[f"{at}self_attn.{one}_proj.weight"], None)) for one in "qkv")
        y = U.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        y = U.linear(y.transpose(1, 2).reshape(BATCH, SEQ, HIDDEN), w[at + "self_attn.o_proj.weight"], None)
        x = U.residual_add(y, skip, tau(2 * i, 2 * LAYERS))
        y, skip = U.residual_split(x, tau(2 * i + 1, 2 * LAYERS))
        y = norm(y, at + "post_attention_layernorm.weight")
        gate, up = (U.linear(y, w[f"{at}mlp.{one}_proj.weight"], None, constraint=None) for one in ("gate", "up"))
        y = U.linear(U.silu_glu(up, gate), w[at + "mlp.down_proj.weight"], None, constraint=None)
        x = U.residual_add(y, skip, tau(2 * i + 1, 2 * LAYERS))
    return U.linear_readout(norm(x, "model.norm.weight"), w["lm_head.weight"], None).reshape(-1, VOCAB)


def factors():
    """By name, the numbers that our functions are called with, and the package's factor."""
    gated = logarithmic_interpolation(1 / 2, 2, 2**0.5)
    result = [{"of": "gated", "arguments": [], "value": gated}]
    for seq, width in ((6, 8), (256, 64), (4096, 128)):
        low = (math.log(seq) / seq) ** 0.5
        value = 1 / logarithmic_interpolation(1 / (1 + 4 * width), low, 1.0)
        result.append({"of": "attention", "arguments": [seq, width], "value": value})
    rule = transformer_residual_scaling_rule()
    result += [{"of": "tau", "arguments": [i, n], "value": rule(i, n)} for n in (4, 16) for i in range(n)]
    for vocab in (19, 32000):
        result.append({"of": "logits", "arguments": [vocab], "value": vocab / (vocab - 1) ** 0.5})
    assert apply_constraint("to_output_scale", 2.0, 3.0) == (2.0, 2.0)
    return result


def learning_rate(shape, kind, in_layer):
    one = unit_scaling.Parameter(torch.zeros(shape), kind, LAYERS if in_layer else None)
    return lr_scale_func_adam(one)


def main():
    w = {name: weight(name, shape).requires_grad_() for name, shape, _, _ in parameters()}
    tokens = torch.tensor([(3 * i * i + 5 * i) % VOCAB for i in range(BATCH * SEQ)])
    labels = torch.tensor([(7 * i * i + 2 * i + 1) % VOCAB for i in range(BATCH * SEQ)])
    logits = forward(w, tokens.reshape(BATCH, SEQ))
    loss = U.cross_entropy(logits, labels)
    loss.backward()

    def numbers(values):
        return [float(f"{x:.9g}") for x in values]

    golden = {
        "package": "unit-scaling 0.3.5", "torch": torch.__version__, "factors": factors(),
        "model": {"hidden": HIDDEN, "layers": LAYERS, "heads": HEADS, "ffn": FFN, "vocab": VOCAB, "batch": BATCH, "seq": SEQ},
        "tokens": tokens.tolist(), "labels": labels.tolist(), "loss": loss.item(),
        "logits": numbers(logits.flatten().tolist()),
        "learning_rates": {name: learning_rate(*rest) for name, *rest in parameters()},
        "gradients": {name: {"rms": (one.grad**2).mean().sqrt().item(), "first": numbers(one.grad.flatten()[:12].tolist())}
                      for name, one in w.items()},
    }
    out = sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/unit_scaling.json"
    with open(out, "w", encoding="utf-8") as file:
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in golden.items()]
        file.write("{" + ",\n ".join(lines) + "}\n")


if __name__ == "__main__":
    main()
