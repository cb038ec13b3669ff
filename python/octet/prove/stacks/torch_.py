"""PyTorch: casts between its types, and torch._scaled_mm."""

from __future__ import annotations

from functools import partial

from .. import cast, scaled_mm
from .._scaled_mm import KS

PACKAGES = ("torch",)
COVERS = "casts of float32, bfloat16, float16 to 8 and 16 bits; _scaled_mm by tensor and by row"
DEVICES = ("cpu", "cuda")

CASTS = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e8m0": "float8_e8m0fnu", "bf16": "bfloat16", "fp16": "float16"}


def proofs(device):
    import torch
    for source in ("f32", "bf16", "fp16"):
        for format, name in CASTS.items():
            if source != format:
                what = f"torch {source} to {name}"
                yield what, partial(cast, lambda x, name=name: x.to(getattr(torch, name)), format, source, like="torch", device=device,
                                    what=what)
    ks = (16, 32, 48, 160, 256, 1024) if device == "cpu" else KS
    for fast in (False, True) if device == "cuda" else (False,):
        for a, b in (("e4m3", "e4m3"), ("e5m2", "e4m3")):
            for scaling in ("tensor", "row"):
                what = f"torch._scaled_mm {a} x {b} by {scaling}" + (" fast" if fast else "")
                sums = None if device == "cpu" else "fast" if fast else "promoted"
                yield what, partial(scaled_mm, partial(_product, fast), a, b, scaling=scaling, out="bf16", sums=sums, device=device,
                                    ks=ks, size=(32, 48) if device == "cpu" else (1024, 2048), what=what)


def _product(fast, a, b, scale_a, scale_b):
    import torch
    return torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=fast)
