"""Groups of a matrix that share a scale, and the rules by which stacks make scales and data."""

from __future__ import annotations

import re

import numpy as np

from .. import _checks, formats
from .._error import Error

__all__ = ["DATA_RULES", "Groups", "SCALE_RULES", "encoded", "narrowed"]

LARGEST = 1024  # elements of a side of groups


class Groups:
    """ids: of each element the number of its group, in the order of scales (row-major); count: how many."""

    def __init__(self, shape: tuple[int, int], granularity: str):
        rows, cols = shape
        tile = {"tensor": (rows, cols), "row": (1, cols)}.get(granularity) if isinstance(granularity, str) else None
        if tile is None:
            match = re.fullmatch(r"(\d+)x(\d+)", granularity) if isinstance(granularity, str) else None
            tile = (int(match[1]), int(match[2])) if match else (0, 0)
            if tile[0] not in (1, tile[1]) or not 1 <= tile[1] <= LARGEST:
                raise Error(f"[prove] granularity: expected tensor, row, 1xG or BxB up to {LARGEST}, got {_checks.shown(granularity)}")
        across = -(-cols // tile[1])
        self.ids = (np.arange(rows) // tile[0])[:, None] * across + np.arange(cols) // tile[1]
        self.count, self.tile = int(self.ids.max()) + 1, tile

    def largest(self, x: np.ndarray) -> np.ndarray:
        """amax of each group, over finite elements."""
        padded = np.pad(np.where(np.isfinite(x), np.abs(x), np.float32(0)), [(0, -n % t) for n, t in zip(x.shape, self.tile)])
        rows, cols = (n // t for n, t in zip(padded.shape, self.tile))
        return padded.reshape(rows, self.tile[0], cols, self.tile[1]).max(axis=(1, 3)).reshape(-1)


def narrowed(values: np.ndarray, format: str) -> np.ndarray:
    """f32 values rounded to bf16 or fp16."""
    return formats.decode(formats.encode(values.astype(np.float32), format, saturate=False), format)


def encoded(values: np.ndarray, format: str) -> np.ndarray:
    """The format's values of f32 ones, saturated."""
    return formats.decode(formats.encode(np.ascontiguousarray(values, np.float32), format), format)


def _power(exponent) -> np.ndarray:
    return np.ldexp(np.float64(1), np.clip(exponent, -127, 127).astype(np.int64)).astype(np.float32)


def _floor_log2(values: np.ndarray) -> np.ndarray:
    return np.frexp(values.astype(np.float64))[1] - 1


def _ceil_log2(values: np.ndarray) -> np.ndarray:
    mantissa, exponent = np.frexp(values.astype(np.float64))
    return np.where(mantissa == 0.5, exponent - 1, exponent)


def _rounded_mantissa(amax: np.ndarray, fraction: int) -> np.ndarray:
    word = np.ascontiguousarray(amax, np.float32).view(np.uint32) + np.uint32(1 << (22 - fraction))
    return (word & np.uint32(0xFF800000)).view(np.float32)


def _fraction(target: float) -> int:
    return 2 if target == 57344 else 3


_F32 = np.float32
# amax [groups] f32 > 0 and the target that it becomes -> scale that dequantizes, f32.
SCALE_RULES = {
    "amax": {
        "amax / target": lambda a, t: a / _F32(t),
        "amax * (1 / target)": lambda a, t: a * (_F32(1) / _F32(t)),
        "1 / (target / amax)": lambda a, t: _F32(1) / (_F32(t) / a),
        "1 / (target * (1 / amax))": lambda a, t: _F32(1) / (_F32(t) * (_F32(1) / a)),
        "1 / (1 / (amax / target))": lambda a, t: _F32(1) / (_F32(1) / (a / _F32(t))),
        "bf16 of amax / target": lambda a, t: narrowed(a / _F32(t), "bf16"),
        "bf16 of amax * (1 / target)": lambda a, t: narrowed(a * (_F32(1) / _F32(t)), "bf16"),
    },
    "power_of_two": {
        "ceil, cuBLAS: 2^ceil(log2(amax / target))": lambda a, t: _power(_ceil_log2(a.astype(np.float64) / t)),
        "ceil of f32(amax / target)": lambda a, t: _power(_ceil_log2(a / _F32(t))),
        "floor, OCP MX 6.3: 2^(floor(log2 amax) - emax)": lambda a, t: _power(_floor_log2(a) - _floor_log2(_F32(t))),
        "OCP's with amax rounded to the format's fraction": lambda a, t: _power(
            _floor_log2(_rounded_mantissa(a, _fraction(t))) - _floor_log2(_F32(t))),
        "OCP's with amax rounded to one bit of fraction": lambda a, t: _power(_floor_log2(_rounded_mantissa(a, 1)) - _floor_log2(_F32(t))),
        "2^(ceil(log2 amax) - emax)": lambda a, t: _power(_ceil_log2(a) - _floor_log2(_F32(t))),
        "2^round(log2(amax / target))": lambda a, t: _power(np.rint(np.log2(a.astype(np.float64) / t))),
    },
}
SCALE_RULES["e8m0"] = SCALE_RULES["power_of_two"]

# x, its group's scale as stored and its amax, all f32 of x's shape, and the target -> what is encoded.
DATA_RULES = {
    "x / scale": lambda x, s, a, t: x / s,
    "x * (1 / scale)": lambda x, s, a, t: x * (_F32(1) / s),
    "x * (target / amax)": lambda x, s, a, t: x * (_F32(t) / a),
    "x / (amax / target)": lambda x, s, a, t: x / (a / _F32(t)),
    "x * (1 / (amax / target))": lambda x, s, a, t: x * (_F32(1) / (a / _F32(t))),
    "x * (target * (1 / amax))": lambda x, s, a, t: x * (_F32(t) * (_F32(1) / a)),
    "bf16 of x / scale": lambda x, s, a, t: narrowed(x / s, "bf16"),
    "bf16 of x * bf16(1 / scale)": lambda x, s, a, t: narrowed(x * narrowed(_F32(1) / s, "bf16"), "bf16"),
}
