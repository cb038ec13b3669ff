"""torchao's MX formats: groups of 32 with E8M0 scales, in each of its rules."""

from __future__ import annotations

from functools import partial

from .. import quantizer

PACKAGES = ("torchao", "torch")
COVERS = "to_mx to E4M3 and E5M2 with FLOOR, RCEIL, CEIL and EVEN scales"
DEVICES = ("cpu", "cuda")


def proofs(device):
    from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode
    for mode in ScaleCalculationMode:
        for source in ("f32", "bf16"):
            for format in ("e4m3", "e5m2"):
                what = f"torchao mx {source} to {format} {mode.name}"
                yield what, partial(quantizer, partial(_quantize, format, mode), format, "1x32", "e8m0", source=source, like="torch",
                                    device=device, multiple=32, what=what)


def _quantize(format, mode, x):
    import torch
    from torchao.prototype.mx_formats.mx_tensor import to_mx
    scale, data = to_mx(x, {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[format], 32, mode)
    return data, scale
