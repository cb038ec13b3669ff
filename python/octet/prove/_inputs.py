"""Inputs of proofs: every value of 16-bit sources; of f32 every boundary, tie, subnormal and special of a format."""

from __future__ import annotations

import numpy as np

from .. import _native, formats
from .._error import Error

__all__ = ["SOURCES", "grid", "hostile", "values_of"]

SOURCES = ("f32", "bf16", "fp16")
N_RANDOM = 1 << 17


def values_of(bits: np.ndarray, source: str) -> np.ndarray:
    """The f32 values of bit patterns of a source."""
    return bits.view(np.float32) if source == "f32" else formats.decode(bits, source)


def grid(format: str) -> np.ndarray:
    """The finite values of a format that are not negative, ascending, as f64, and one more beyond the largest."""
    width = _native.format_bytes(format)
    values = formats.decode(np.arange(1 << (8 * width), dtype=np.uint32).astype(f"u{width}"), format)
    values = np.unique(np.abs(values[np.isfinite(values) & (values >= 0)]).astype(np.float64))
    beyond = 2 * values[-1] if format == "e8m0" else 2 * values[-1] - values[-2]
    return np.append(values, beyond)


def hostile(format: str, source: str) -> np.ndarray:
    """Bit patterns of a source, each once: uint16 or uint32."""
    if source not in SOURCES:
        raise Error(f"[prove] source: expected one of {' '.join(SOURCES)}, got {source!r}")
    if source != "f32":
        return np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    points = grid(format)
    with np.errstate(over="ignore"):
        marks = np.concatenate([points, (points[:-1] + points[1:]) / 2]).astype(np.float32)
    marks = np.concatenate([marks, -marks]).view(np.uint32)
    near = [(marks.astype(np.int64) + d).clip(0, 2**32 - 1).astype(np.uint32) for d in range(-2, 3)]
    narrow = np.arange(1 << 16, dtype=np.uint32)
    powers = np.arange(256, dtype=np.uint32) << 23
    special = np.array([0x7F800000, 0x7F800001, 0x7F7FFFFF, 0x7FC00000, 0x7FFFFFFF, 1, 2, 0x007FFFFF, 0x00400000], np.uint32)
    random = np.random.default_rng(7).integers(0, 2**32, N_RANDOM, dtype=np.uint32)
    # Two roundings: what lies just beside a tie becomes the tie in bf16 or fp16.
    beside = [(marks + np.uint32(d)) & np.uint32(0xFFFFFFFF) for d in (0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001)]
    halves = formats.decode(narrow.astype(np.uint16), "fp16").view(np.uint32)
    signed = np.concatenate([powers, special])
    return np.unique(np.concatenate([*near, *beside, narrow << np.uint32(16), halves, signed, signed | np.uint32(0x80000000), random]))
