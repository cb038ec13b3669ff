"""bitsandbytes' 8-bit AdamW: blocks of 256, the dynamic tree."""

from __future__ import annotations

from functools import partial

from .. import optimizer

PACKAGES = ("bitsandbytes", "torch")
COVERS = "optim.AdamW8bit: every step, moments, resume, shards"
DEVICES = ("cpu", "cuda")


def proofs(device):
    import bitsandbytes
    for dtype in ("float32", "bfloat16"):
        what = f"bitsandbytes AdamW8bit {dtype}"
        yield what, partial(optimizer, bitsandbytes.optim.AdamW8bit, moments=_moments, stored=("de8s", "de8u"), dtype=dtype, device=device,
                            what=what)


def _moments(opt, p):
    from bitsandbytes.functional import dequantize_blockwise
    state = opt.state[p]
    return [dequantize_blockwise(state[f"state{i}"], absmax=state[f"absmax{i}"], code=state[f"qmap{i}"], blocksize=256) for i in (1, 2)]
