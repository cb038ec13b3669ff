"""torchao's 8-bit and FP8 AdamW. On a CPU without its torch.compile, whose code takes a minute to make."""

from __future__ import annotations

from functools import partial

from .. import cast, optimizer

PACKAGES = ("torchao", "torch")
COVERS = "AdamW8bit, AdamWFp8: every step, moments, resume, shards; stochastic rounding to bfloat16"
DEVICES = ("cpu", "cuda")

STORED = {"AdamW8bit": ("de8s", "de8u"), "AdamWFp8": ("e4m3", "e4m3")}


def proofs(device):
    from torchao.optim.quant_utils import _fp32_to_bf16_sr
    what = "torchao _fp32_to_bf16_sr"
    yield what, partial(cast, _fp32_to_bf16_sr, "bf16", rounding="stochastic", like="torch", device=device, what=what)
    for name, stored in STORED.items():
        if name == "AdamWFp8" and device == "cuda" and not _has_fp8():
            continue
        for dtype in ("float32", "bfloat16"):
            what = f"torchao {name} {dtype}"
            yield what, partial(_prove, name, stored, dtype, device, what)


def _prove(name, stored, dtype, device, what):
    import torch
    import torchao.optim
    with torch.compiler.set_stance("force_eager" if device == "cpu" else "default"):
        return optimizer(getattr(torchao.optim, name), moments=_moments, stored=stored, dtype=dtype, device=device, what=what)


def _moments(opt, p):
    return [opt.state[p][key].dequantize() for key in ("exp_avg", "exp_avg_sq")]


def _has_fp8() -> bool:
    import torch
    return torch.cuda.get_device_capability() >= (8, 9)
