"""A Llama's loss under a recipe's definition, in PyTorch and with nothing of Octet: what `octet eval` should come to.

Linears of the layers read E4M3 codes (`hif8`: HiF8); all that a recipe does not quantize is rounded to BF16 where Octet stores it,
and f32 inside an op. Scales: a tensor's x and, over the linears that share one, w: amax / 448 in f32 (HiF8: amax / 15). In blocks:
amax / 448, with `:power` the power of two above, as in `mxfp8`. `scalify_fp8` and `coat-static`: powers of two that put the RMS that is predicted from the weights' at 2.
`coat` reads what `fp8_linear` does, and `coat-static` what `scalify_fp8` does; with recipe.forward_reads: stored (`coat:stored`)
norms and activations read groups of 16 with BF16 scales.
"""

import importlib.util
import json
import math
from pathlib import Path

STATIC = {"scalify_fp8", "coat-static"}
STORED = ":stored"
POWER = ":power"
BLOCKS = {"fp8_block", "coat-block"}
COAT = {"coat", "coat-block", "coat-fast", "coat-static"}
RECIPES = ({"bf16", "fp8_linear", "fp8_lm", "fp8_row", "fp8_block", "fp8_block" + POWER, "mxfp8", "hif8", "scalify_fp8"} | COAT
           | {name + STORED for name in COAT})
GROUPS = (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("self_attn.o_proj",), ("mlp.gate_proj", "mlp.up_proj"),
          ("mlp.down_proj",))


def is_available() -> bool:
    return all(importlib.util.find_spec(name) for name in ("torch", "safetensors"))


def nll(model: Path, ids: list[int], size: tuple[int, int], recipe: str) -> float:
    """Mean over the predictions of ids[1:] in windows of size[0], size[1] of them at a time; coat-fast is coat without a history."""
    import torch

    with torch.no_grad():
        return Emulation(model, recipe).nll(ids, *size)


class Emulation:
    def __init__(self, model: Path, recipe: str):
        import torch
        from safetensors.torch import load_file

        self.torch, self.recipe, self.reads_stored = torch, recipe.removesuffix(STORED).removesuffix(POWER), recipe.endswith(STORED)
        self.has_powers = recipe.endswith(POWER) or self.recipe == "mxfp8"
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.config = json.loads((model / "config.json").read_text())
        self.w = {name: tensor.float().to(self.device) for name, tensor in load_file(model / "model.safetensors").items()}
        self.is_wide = recipe in ("fp32", "bf16")
        self.rms = {name: 0.5 * math.log2(w.double().square().mean().item()) for name, w in self.w.items() if w.dim() > 1}
        for name in self.w:
            self.w[name] = self.narrow(self.w[name])  # the masters' compute copy
        self.quantize_weights()

    def narrow(self, x):
        return x if self.recipe == "fp32" else x.bfloat16().float()

    def codes(self, x, scale):
        return (x * (1 / scale)).clamp(-448, 448).to(self.torch.float8_e4m3fn).float() * scale

    def hif8(self, x):
        """3 bits of fraction up to 2^3, 2 up to 2^7, 1 up to 2^15; ties away from zero. What is scaled to 15 reaches neither end."""
        torch = self.torch
        magnitude = x.double().abs()
        exponent = torch.floor(torch.log2(magnitude.clamp(min=2.0**-60)))
        size = exponent.abs()
        bits = torch.where(size <= 3, 3.0, torch.where(size <= 7, 2.0, 1.0))
        step = torch.exp2(exponent - bits)
        value = torch.floor(magnitude / step + 0.5) * step
        power = torch.exp2(torch.floor(torch.log2(magnitude.clamp(min=2.0**-60) / 1.5)) + 1)  # a power alone, rounded at 1.5 times
        value = torch.where(exponent < -15, torch.where(power >= 2.0**-22, power, 0.0), value)
        return torch.copysign(torch.where(magnitude > 0, value, 0.0), x.double()).float()

    def by_tensor(self, x, amax):
        if self.recipe == "hif8":
            scale = amax * self.torch.tensor(1 / 15, device=x.device)
            return self.hif8(x * (1 / scale)) * scale
        return self.codes(x, (amax * self.torch.tensor(1 / 448, device=x.device)).clamp(min=2.0**-100))

    def by_block(self, x, rows, cols):
        """Blocks of rows x cols of a matrix; those at the edges as if padded with zeros."""
        torch = self.torch
        n, k = x.shape
        padded = torch.nn.functional.pad(x, (0, -k % cols, 0, -n % rows))
        blocks = padded.reshape(padded.shape[0] // rows, rows, padded.shape[1] // cols, cols)
        amax = blocks.abs().amax(dim=(1, 3), keepdim=True)
        scale = (torch.exp2(torch.ceil(torch.log2(amax.double() / 448))).float() if self.has_powers else
                 (amax * torch.tensor(1 / 448, device=x.device)).clamp(min=2.0**-100))
        scale = torch.where(amax > 0, scale, 1.0)
        return self.codes(blocks, scale).reshape(padded.shape)[:n, :k]

    def by_group(self, x):
        """Groups of 16 with BF16 scales: what coat stores for the backward pass."""
        groups = x.reshape(-1, 16)
        amax = groups.abs().amax(dim=1, keepdim=True)
        scale = (amax * self.torch.tensor(1 / 448, device=x.device)).bfloat16().float().clamp(min=2.0**-100)
        return self.codes(groups, self.torch.where(amax > 0, scale, 1.0)).reshape(x.shape)

    def quantize_weights(self):
        if self.is_wide:
            return
        for layer in range(self.config["num_hidden_layers"]):
            for group in GROUPS:
                names = [f"model.layers.{layer}.{linear}.weight" for linear in group]
                amax = max(self.w[name].abs().max() for name in names)
                rms = max(self.rms[name] for name in names)
                for name in names:
                    w = self.w[name]
                    self.w[name] = (self.codes(w, self.predicted_scale(rms)) if self.recipe in STATIC else
                                    self.by_block(w, 128, 128) if self.recipe in BLOCKS else
                                    self.by_block(w, 1, w.shape[1]) if self.recipe == "fp8_row" else
                                    self.by_block(w, 1, 32) if self.recipe == "mxfp8" else self.by_tensor(w, amax))

    def predicted_scale(self, rms):
        return self.torch.tensor(2.0 ** (math.ceil(rms - 0.5) - 1), device=self.device)

    def predict_inputs(self, seq):
        """log2 of the RMS that the rules of docs/scalify.md predict for what o and down read; norms' results: 1."""
        torch = self.torch
        z = torch.linspace(-8, 8, 4001, dtype=torch.float64)
        law = torch.exp(-z * z / 2)
        averaging = 0.5 * math.log2(min(1.0, (math.log(seq) + 0.5772) / seq))
        fan_in = 0.5 * math.log2(self.config["hidden_size"])
        self.predicted = {}
        for layer in range(self.config["num_hidden_layers"]):
            at = f"model.layers.{layer}"
            of = {name: self.rms[f"{at}.{name}.weight"] + fan_in for name in ("self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")}
            silu = torch.nn.functional.silu(z * 2.0 ** of["mlp.gate_proj"])
            self.predicted[at + ".self_attn.o_proj"] = of["self_attn.v_proj"] + averaging
            self.predicted[at + ".mlp.down_proj"] = of["mlp.up_proj"] + 0.5 * math.log2(((silu * silu * law).sum() / law.sum()).item())

    def operand(self, x, reader=""):
        """What a GEMM reads; a tensor's quantizer reads f32, those of blocks BF16. reader: where a scale is predicted for it."""
        if self.is_wide:
            return self.narrow(x)
        if self.recipe in STATIC:
            return self.codes(x, self.predicted_scale(self.predicted.get(reader, 0.0)))
        flat = x.reshape(-1, x.shape[-1])
        cols = {"fp8_block": 128, "coat-block": 128, "fp8_row": flat.shape[1], "mxfp8": 32}.get(self.recipe)
        if cols is not None:
            return self.by_block(self.narrow(flat), 1, cols).reshape(x.shape)
        return self.by_tensor(x, x.abs().max())

    def stored(self, x, narrow):
        """What a norm or an activation reads of a value, and the BF16 value itself."""
        return self.by_group(x) if self.reads_stored else narrow

    def norm(self, x, name):
        rstd = self.torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return x * rstd * self.w[name + ".weight"]

    def linear(self, x, name):
        return self.narrow(x @ self.w[name + ".weight"].T)

    def rotated(self, x):
        torch, half = self.torch, x.shape[-1] // 2
        theta = self.config["rope_theta"]
        frequency = theta ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
        angle = torch.arange(x.shape[-2], device=x.device, dtype=torch.float64)[:, None] * frequency
        cos, sin = angle.cos().float(), angle.sin().float()
        a, b = x[..., :half], x[..., half:]
        return self.narrow(torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1))

    def attention(self, x, prefix):
        torch, batch, seq = self.torch, x.shape[0], x.shape[1]
        heads, kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        q, k, v = (self.linear(x, f"{prefix}.{name}_proj").reshape(batch, seq, n, -1).transpose(1, 2)
                   for name, n in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        q, k = self.rotated(q), self.rotated(k)
        k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.narrow(y.transpose(1, 2).reshape(batch, seq, -1))

    def logits(self, tokens):
        torch = self.torch
        x = self.w["model.embed_tokens.weight"][tokens]
        read = self.stored(x, x)
        for layer in range(self.config["num_hidden_layers"]):
            at = f"model.layers.{layer}"
            y = self.attention(self.operand(self.norm(read, at + ".input_layernorm")), at + ".self_attn")
            total = x + self.linear(self.operand(y, at + ".self_attn.o_proj"), at + ".self_attn.o_proj")
            x, read = self.narrow(total), self.stored(total, self.narrow(total))
            y = self.operand(self.norm(read, at + ".post_attention_layernorm"))
            gate, up = (self.linear(y, f"{at}.mlp.{name}_proj") for name in ("gate", "up"))
            y = torch.nn.functional.silu(self.stored(gate, gate)) * self.stored(up, up)
            total = x + self.linear(self.operand(y, at + ".mlp.down_proj"), at + ".mlp.down_proj")
            is_last = layer + 1 == self.config["num_hidden_layers"]
            x = self.narrow(total)
            read = x if is_last else self.stored(total, x)
        head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])
        return self.narrow(self.narrow(self.norm(x, "model.norm")) @ head.T)

    def nll(self, ids, seq, batch):
        torch = self.torch
        total, n = 0.0, 0
        self.predict_inputs(seq)
        windows = [ids[first:first + seq + 1] for first in range(0, len(ids) - 1, seq)]
        for first in range(0, len(windows), batch):
            part = windows[first:first + batch]
            longest = max(len(window) for window in part) - 1
            tokens = torch.tensor([window[:-1] + [0] * (longest - len(window) + 1) for window in part], device=self.device)
            logits = self.logits(tokens)
            for row, window in enumerate(part):
                labels = torch.tensor(window[1:], device=self.device)
                total += torch.nn.functional.cross_entropy(logits[row, : len(labels)], labels, reduction="sum").item()
                n += len(labels)
        return total / n
