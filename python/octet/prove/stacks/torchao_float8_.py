"""torchao's float8 training: dynamic scales by tensor and by row, with and without powers of two."""

from __future__ import annotations

from functools import partial

from .. import quantizer

PACKAGES = ("torchao", "torch")
COVERS = "hp_tensor_to_float8_dynamic: tensorwise, rowwise (also of rowwise_with_gw_hp), power-of-two scales"
DEVICES = ("cpu", "cuda")


def proofs(device):
    for source in ("f32", "bf16"):
        for format in ("e4m3", "e5m2"):
            for granularity, is_power in (("tensor", False), ("row", False), ("row", True)):
                what = f"torchao float8 {source} to {format} {granularity}" + (" power of two" if is_power else "")
                yield what, partial(quantizer, partial(_quantize, format, granularity == "row", is_power), format, granularity,
                                    "power_of_two" if is_power else "amax", source=source, like="torch", device=device, inverse=True,
                                    what=what)


def _quantize(format, is_row, is_power, x):
    import torch
    from torchao.float8.config import ScalingGranularity
    from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
    from torchao.float8.float8_training_tensor import LinearMMConfig
    given = {"scaling_granularity": ScalingGranularity.AXISWISE, "axiswise_dim": -1} if is_row else {}
    dtype = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[format]
    y = hp_tensor_to_float8_dynamic(x, dtype, LinearMMConfig(), round_scales_to_power_of_2=is_power, **given)
    return y._data, y._scale
