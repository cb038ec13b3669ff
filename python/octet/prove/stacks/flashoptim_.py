"""FlashOptim's AdamW with 8-bit states, which needs a CUDA device."""

from __future__ import annotations

from functools import partial

from .. import optimizer

PACKAGES = ("flashoptim", "torch")
COVERS = "FlashAdamW: zero gradients, resume, shards, repetition"
DEVICES = ("cuda",)


def proofs(device):
    import flashoptim
    for dtype in ("float32", "bfloat16"):
        what = f"flashoptim FlashAdamW {dtype}"
        # Float32 needs no bits beside its own, and is refused with some.
        make = partial(flashoptim.FlashAdamW, master_weight_bits=None) if dtype == "float32" else flashoptim.FlashAdamW
        yield what, partial(optimizer, make, dtype=dtype, device=device, what=what)
