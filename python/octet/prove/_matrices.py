"""Matrices on which quantizers fail: scale edges, boundaries of scales, ties, ragged tails."""

from __future__ import annotations

import numpy as np

from .. import formats
from ._groups import Groups
from ._inputs import grid

__all__ = ["EDGES", "edge_matrices", "regular_matrices", "shapes", "to_source"]

# amax of groups of which no rule but finiteness is asked: their scales may be at an end of the range.
EDGES = {
    "zeros": 0.0, "smallest subnormal": 2.0**-149, "subnormal": 3 * 2.0**-140, "largest subnormal": 2.0**-126 - 2.0**-149,
    "smallest normal": 2.0**-126, "2^-127 x 448": 448 * 2.0**-127, "2^-118": 2.0**-118, "2^-110": 2.0**-110, "1e-30": 1e-30, "1e-13": 1e-13,
    "2^100": 2.0**100, "2^127": 2.0**127, "largest": float(np.finfo(np.float32).max), "infinity": np.inf, "NaN": np.nan,
}


def to_source(x: np.ndarray, source: str) -> np.ndarray:
    """f32 values rounded to what a source holds, saturated."""
    x = np.ascontiguousarray(x, np.float32)
    return x if source == "f32" else np.where(np.isfinite(x), formats.decode(formats.encode(x, source), source), x)


def shapes(granularity: str, multiple: int) -> list[tuple[int, int]]:
    """[rows, cols] with whole groups and, where nothing asks for multiples, ragged tails."""
    tile = Groups((4, 32), granularity).tile if granularity in ("tensor", "row") else Groups((1, 1), granularity).tile
    rows, cols = (tile[0], tile[1]) if granularity not in ("tensor", "row") else (4, 32)
    sizes = [(rows, cols), (2 * rows, 3 * cols), (3 * rows, 8 * cols)]
    ragged = [(1, 1), (1, cols - 1), (1, cols + 1), (3, 2 * cols + 5), (rows + 1, cols + 7), (37, 130), (2, 4099)]
    long = [(1, 16384), (17 * rows, 1024)]
    return [s for s in sizes + ragged + long
            if s[1] > 0 and s[1] % multiple == 0 and (multiple == 1 or s[0] % min(rows, multiple) == 0)]


def _fill(groups: Groups, shape, amax: np.ndarray, format: str, rng) -> np.ndarray:
    """Values whose groups have these amax: normal ones, ties of the format, zeros, and the amax itself at a random place."""
    points = grid(format)
    target = formats.formats()[format]["amax_target"]
    ties = (points[:-2] + points[1:-1]) / 2
    ties = ties[ties <= target] / target
    of = rng.choice(ties, shape) * rng.choice([-1.0, 1.0], shape)
    x = np.where(rng.random(shape) < 0.5, rng.standard_normal(shape).clip(-4, 4) / 4, of)
    x = np.where(rng.random(shape) < 0.05, 0.0, x)
    with np.errstate(all="ignore"):
        x = (x * np.where(np.isfinite(amax), amax, 1.0)[groups.ids]).astype(np.float32)
    order = rng.permutation(x.size)
    first = np.full(groups.count, -1)
    first[groups.ids.reshape(-1)[order]] = order
    signs = np.where(np.isnan(amax), 1.0, rng.choice([-1.0, 1.0], groups.count))
    x.reshape(-1)[first] = (amax * signs).astype(np.float32)
    return x


def _amax_boundaries(target: float) -> np.ndarray:
    """Where rules for scales part: powers of two, target times them, half fractions; each with its neighbours."""
    factors = (1.0, 1.5, 1.75, 1.875, 1.9375, target / 2.0**np.floor(np.log2(target)))
    marks = np.float32([m * 2.0**e for e in (-36, -13, -3, -1, 0, 1, 5, 8, 20, 60) for m in factors]).view(np.uint32)
    return np.concatenate([marks + np.uint32(0), marks + np.uint32(1), marks - np.uint32(1)]).view(np.float32)


def regular_matrices(format: str, granularity: str, source: str, multiple: int, target: float):
    """(case, x): groups whose scales are far from the ends of the range."""
    rng = np.random.default_rng(3)
    marks = _amax_boundaries(target)
    for shape in shapes(granularity, multiple):
        groups = Groups(shape, granularity)
        amax = np.exp2(rng.uniform(-30, 30, groups.count)).astype(np.float32)
        yield f"{shape[0]} x {shape[1]}", to_source(_fill(groups, shape, amax, format, rng), source)
    shape = shapes(granularity, multiple)[0 if granularity == "tensor" else 1]
    per = Groups(shape, granularity).count
    for begin in range(0, len(marks), per):
        amax = np.resize(marks[begin : begin + per], per)
        yield f"boundary of scales, {shape[0]} x {shape[1]}", to_source(_fill(Groups(shape, granularity), shape, amax, format, rng), source)


def edge_matrices(format: str, granularity: str, source: str, multiple: int):
    """(edge, x): one group, or the first of several, at an end of the range; the others are regular."""
    rng = np.random.default_rng(5)
    shape = shapes(granularity, multiple)[1]
    groups = Groups(shape, granularity)
    for edge, amax in EDGES.items():
        largest = np.exp2(rng.uniform(-10, 10, groups.count)).astype(np.float32)
        largest[0] = amax
        x = _fill(groups, shape, largest, format, rng)
        if edge == "zeros":
            x[(groups.ids == 0) & (rng.random(shape) < 0.5)] = -0.0
        yield edge, to_source(x, source)
