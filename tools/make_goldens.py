#!/usr/bin/python3
"""Writes tests/golden/models/*.safetensors: an oracle of the models that shares nothing with Octet.

Plain PyTorch in f32 on the CPU: tiny Llama, OLMo-1 and GPT-2, written from their papers with
Hugging Face's parameter names and layouts. Each file holds the weights ("w:NAME"), tokens, labels
(-1: not counted), logits, loss, all gradients ("g:NAME") and the parameters after one AdamW step
from zero moments ("w1:NAME"); its metadata hold the model's shape and the hyper-parameters.

Usage: /usr/bin/python3 tools/make_goldens.py [FOLDER]
Needs PyTorch only. Prints also how far f32 is from the same computation in f64.
"""
import json
import math
import pathlib
import struct
import sys

import torch
import torch.nn.functional as F

ADAMW = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}

ROPE = {"rope_theta": 10000.0, "rope_scaling": "none", "rope_factor": 1.0,
        "rope_low_freq_factor": 1.0, "rope_high_freq_factor": 4.0,
        "rope_original_max_position": 8192}
# Small: each file has at most 50 KB.
TINY = {"hidden": 12, "layers": 2, "heads": 2, "kv_heads": 2, "head_dim": 6, "ffn": 16, "vocab": 19,
        "max_positions": 64, "norm_eps": 1e-5, "tied": False, "gelu": "tanh", "batch": 2, "seq": 11,
        **ROPE}

# name -> what differs from TINY
GOLDENS = {
    "llama_grouped_query": {"kind": "llama", "hidden": 14, "heads": 4, "head_dim": 4, "ffn": 12},
    "llama_tied": {"kind": "llama", "layers": 1, "kv_heads": 1, "tied": True, "norm_eps": 1e-6},
    "llama_rope_linear": {"kind": "llama", "layers": 1, "rope_scaling": "linear",
                          "rope_factor": 4.0},
    # Wavelengths kept, between the two bounds, and stretched; heads wider than hidden / heads.
    "llama_rope_llama3": {"kind": "llama", "layers": 1, "heads": 4, "head_dim": 8, "batch": 1,
                          "seq": 29, "rope_theta": 500.0, "rope_scaling": "llama3",
                          "rope_factor": 8.0, "rope_original_max_position": 64},
    "olmo": {"kind": "olmo"},
    "olmo_tied": {"kind": "olmo", "layers": 1, "tied": True},
    "gpt2": {"kind": "gpt2", "hidden": 10, "head_dim": 5, "ffn": 36, "tied": True,
             "max_positions": 13},
}


def inverse_frequencies(cfg):
    """[head_dim / 2], f32: theta^(-2i / head_dim), stretched as the scaling says."""
    exponent = torch.arange(0, cfg["head_dim"], 2, dtype=torch.float64) / cfg["head_dim"]
    inv = 1.0 / cfg["rope_theta"] ** exponent
    if cfg["rope_scaling"] == "linear":
        inv = inv / cfg["rope_factor"]
    if cfg["rope_scaling"] == "llama3":
        low, high = cfg["rope_low_freq_factor"], cfg["rope_high_freq_factor"]
        turns = cfg["rope_original_max_position"] * inv / (2 * math.pi)
        smooth = ((turns - low) / (high - low)).clamp(0, 1)
        inv = (1 - smooth) * inv / cfg["rope_factor"] + smooth * inv
    return inv


def rotate(x, cfg):
    """x [B, H, T, head_dim]: the pair (i, i + head_dim / 2) turns by position * frequency i."""
    angle = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), inverse_frequencies(cfg))
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def causal_attention(q, k, v, cfg):
    """q [B*T, H*dh], k and v [B*T, Hkv*dh] -> [B*T, H*dh]; query head h reads head h * Hkv / H."""
    def heads(x, n):
        return x.view(cfg["batch"], cfg["seq"], n, cfg["head_dim"]).transpose(1, 2)

    q, k, v = heads(q, cfg["heads"]), heads(k, cfg["kv_heads"]), heads(v, cfg["kv_heads"])
    if cfg["kind"] != "gpt2":
        q, k = rotate(q, cfg), rotate(k, cfg)
    group = cfg["heads"] // cfg["kv_heads"]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(cfg["head_dim"])
    future = torch.ones(cfg["seq"], cfg["seq"], dtype=torch.bool).triu(1)
    o = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1) @ v
    return o.transpose(1, 2).reshape(cfg["batch"] * cfg["seq"], -1)


def rms_norm(x, w, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def rotary_decoder(p, tokens, cfg):
    """Llama, and OLMo-1 with its LayerNorm that has no parameters."""
    def norm(x, name):
        if cfg["kind"] == "olmo":
            return F.layer_norm(x, (cfg["hidden"],), eps=cfg["norm_eps"])
        return rms_norm(x, p[name + ".weight"], cfg["norm_eps"])

    x = p["model.embed_tokens.weight"][tokens]
    for n in range(cfg["layers"]):
        w = {k: p[f"model.layers.{n}.{k}.weight"] for k in (
            "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
            "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")}
        h = norm(x, f"model.layers.{n}.input_layernorm")
        q, k, v = (h @ w[f"self_attn.{c}_proj"].T for c in "qkv")
        x = x + causal_attention(q, k, v, cfg) @ w["self_attn.o_proj"].T
        h = norm(x, f"model.layers.{n}.post_attention_layernorm")
        gate, up = h @ w["mlp.gate_proj"].T, h @ w["mlp.up_proj"].T
        x = x + (F.silu(gate) * up) @ w["mlp.down_proj"].T
    head = p["model.embed_tokens.weight"] if cfg["tied"] else p["lm_head.weight"]
    return norm(x, "model.norm") @ head.T


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3))))


def gpt2_decoder(p, tokens, cfg):
    def conv1d(x, name):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    def norm(x, name):
        w, b = p[name + ".weight"], p[name + ".bias"]
        return F.layer_norm(x, (cfg["hidden"],), w, b, cfg["norm_eps"])

    positions = torch.arange(cfg["seq"]).repeat(cfg["batch"])
    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][positions]
    for n in range(cfg["layers"]):
        at = f"transformer.h.{n}."
        q, k, v = conv1d(norm(x, at + "ln_1"), at + "attn.c_attn").chunk(3, dim=-1)
        x = x + conv1d(causal_attention(q, k, v, cfg), at + "attn.c_proj")
        x = x + conv1d(gelu_tanh(conv1d(norm(x, at + "ln_2"), at + "mlp.c_fc")), at + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ p["transformer.wte.weight"].T


def decoder(cfg):
    return gpt2_decoder if cfg["kind"] == "gpt2" else rotary_decoder


def rotary_shapes(cfg):
    h, q, kv = cfg["hidden"], cfg["heads"] * cfg["head_dim"], cfg["kv_heads"] * cfg["head_dim"]
    shapes = {"model.embed_tokens.weight": (cfg["vocab"], h)}
    for n in range(cfg["layers"]):
        at = f"model.layers.{n}."
        if cfg["kind"] == "llama":
            shapes[at + "input_layernorm.weight"] = (h,)
            shapes[at + "post_attention_layernorm.weight"] = (h,)
        for name, shape in (("self_attn.q_proj", (q, h)), ("self_attn.k_proj", (kv, h)),
                            ("self_attn.v_proj", (kv, h)), ("self_attn.o_proj", (h, q)),
                            ("mlp.gate_proj", (cfg["ffn"], h)), ("mlp.up_proj", (cfg["ffn"], h)),
                            ("mlp.down_proj", (h, cfg["ffn"]))):
            shapes[at + name + ".weight"] = shape
    if cfg["kind"] == "llama":
        shapes["model.norm.weight"] = (h,)
    if not cfg["tied"]:
        shapes["lm_head.weight"] = (cfg["vocab"], h)
    return shapes


def gpt2_shapes(cfg):
    h, f = cfg["hidden"], cfg["ffn"]
    shapes = {"transformer.wte.weight": (cfg["vocab"], h),
              "transformer.wpe.weight": (cfg["max_positions"], h)}

    def with_bias(name, shape):
        shapes[name + ".weight"] = shape
        shapes[name + ".bias"] = shape[-1:]

    for n in range(cfg["layers"]):
        at = f"transformer.h.{n}."
        with_bias(at + "ln_1", (h,))
        with_bias(at + "attn.c_attn", (h, 3 * h))
        with_bias(at + "attn.c_proj", (h, h))
        with_bias(at + "ln_2", (h,))
        with_bias(at + "mlp.c_fc", (h, f))
        with_bias(at + "mlp.c_proj", (f, h))
    with_bias("transformer.ln_f", (h,))
    return shapes


def parameter_shapes(cfg):
    return gpt2_shapes(cfg) if cfg["kind"] == "gpt2" else rotary_shapes(cfg)


def make_weights(cfg, generator):
    """Wide enough that softmax, gates and norms are far from their linear parts."""
    weights = {}
    for name, shape in parameter_shapes(cfg).items():
        noise = torch.randn(shape, generator=generator)
        if len(shape) == 2:
            weights[name] = noise * (1.0 / math.sqrt(cfg["hidden"]))
        else:
            weights[name] = noise * 0.1 + (0.0 if name.endswith(".bias") else 1.0)
    return weights


def decays(name, shape):
    embeddings = ("embed_tokens.weight", "wte.weight", "wpe.weight")
    return len(shape) == 2 and not name.endswith(embeddings)


def adamw_step(w, g, decay):
    """The first step, from zero moments; every rate is a Python float."""
    m, v = (1 - ADAMW["beta1"]) * g, (1 - ADAMW["beta2"]) * g * g
    m_hat, v_hat = m / (1 - ADAMW["beta1"]), v / (1 - ADAMW["beta2"])
    return w - ADAMW["lr"] * (m_hat / (v_hat.sqrt() + ADAMW["eps"]) + decay * w)


def run(cfg, weights, tokens, labels, dtype):
    p = {name: w.detach().clone().to(dtype).requires_grad_() for name, w in weights.items()}
    logits = decoder(cfg)(p, tokens, cfg)
    loss = F.cross_entropy(logits, labels, ignore_index=-1)
    loss.backward()
    out = {"logits": logits.detach(), "loss": loss.detach()}
    for name, w in p.items():
        out["g:" + name] = w.grad
        decay = ADAMW["weight_decay"] if decays(name, w.shape) else 0.0
        out["w1:" + name] = adamw_step(w.detach(), w.grad, decay)
    return out


def write_safetensors(path, tensors, metadata):
    names = {torch.float32: ("F32", "f"), torch.int32: ("I32", "i")}
    header, data = {"__metadata__": metadata}, b""
    for name, t in tensors.items():
        kind, code = names[t.dtype]
        raw = struct.pack(f"<{t.numel()}{code}", *t.flatten().tolist())
        header[name] = {"dtype": kind, "shape": list(t.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def worst_distance(narrow, wide):
    """Largest |f32 - f64| of a tensor relative to its largest magnitude, and that tensor's name."""
    def distance(name):
        return ((narrow[name].double() - wide[name]).abs().max() / wide[name].abs().max()).item()

    name = max((n for n in wide if not n.startswith("w1:")), key=distance)
    return f"{distance(name):.1e} ({name})"


def make(name, cfg, seed, folder):
    generator = torch.Generator().manual_seed(seed)
    weights = make_weights(cfg, generator)
    n_rows = cfg["batch"] * cfg["seq"]
    tokens = torch.randint(cfg["vocab"], (n_rows,), generator=generator)
    labels = torch.randint(cfg["vocab"], (n_rows,), generator=generator)
    labels[torch.randperm(n_rows, generator=generator)[:3]] = -1
    results = run(cfg, weights, tokens, labels, torch.float32)
    tensors = {"tokens": tokens.int(), "labels": labels.int(),
               **{"w:" + k: w for k, w in weights.items()}, **results}
    path = folder / f"{name}.safetensors"
    metadata = {k: str(v).lower() for k, v in {**cfg, **ADAMW}.items()}
    write_safetensors(path, tensors, metadata)
    wide = run(cfg, weights, tokens, labels, torch.float64)
    print(f"{path.name}: {path.stat().st_size} bytes, loss {results['loss']:.6f}, "
          f"f32 from f64 at most {worst_distance(results, wide)}")


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    fixtures = here / "tests" / "golden" / "models"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else fixtures
    torch.set_num_threads(1)
    for seed, (name, changes) in enumerate(GOLDENS.items(), start=1):
        make(name, {**TINY, **changes}, seed, folder)


if __name__ == "__main__":
    main()
