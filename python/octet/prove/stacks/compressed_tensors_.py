"""compressed-tensors: the scales and data that its compressors write into checkpoints."""

from __future__ import annotations

from functools import partial

from .. import quantizer

PACKAGES = ("compressed_tensors", "torch")
COVERS = "calculate_qparams and quantize of FP8 by tensor, channel, group of 128, block of 128 x 128, and MXFP8"
DEVICES = ("cpu", "cuda")

SCHEMES = {
    "tensor": ("tensor", {"strategy": "tensor"}, "amax", 1),
    "channel": ("row", {"strategy": "channel"}, "amax", 1),
    "group of 128": ("1x128", {"strategy": "group", "group_size": 128}, "amax", 128),
    "block": ("128x128", {"strategy": "block", "block_structure": [128, 128]}, "amax", 128),
    "MXFP8": ("1x32", {"strategy": "group", "group_size": 32}, "e8m0", 32),
}


def proofs(device):
    for name, (granularity, _, rule, multiple) in SCHEMES.items():
        for source in ("f32", "bf16"):
            what = f"compressed-tensors {source} {name}"
            yield what, partial(quantizer, partial(_quantize, name), "e4m3", granularity, rule, source=source, like="torch", device=device,
                                multiple=multiple, what=what)


def _quantize(name, x):
    import torch
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import quantize
    from compressed_tensors.quantization.utils import calculate_qparams
    granularity, given, rule, _ = SCHEMES[name]
    more = {"scale_dtype": torch.uint8} if rule == "e8m0" else {}
    args = QuantizationArgs(num_bits=8, type="float", symmetric=True, **given, **more)
    if granularity == "tensor":
        low, high = (f(x).reshape(1) for f in (torch.min, torch.max))
    elif granularity == "128x128":
        tiles = x.reshape(x.shape[0] // 128, 128, x.shape[1] // 128, 128)
        low, high = tiles.amin(dim=(1, 3)), tiles.amax(dim=(1, 3))
    else:
        groups = x.reshape(x.shape[0], -1, given.get("group_size", x.shape[1]))
        low, high = groups.amin(dim=2), groups.amax(dim=2)
    scale, zero = calculate_qparams(low, high, args)
    return quantize(x, scale, zero, args, dtype=torch.float8_e4m3fn), scale
