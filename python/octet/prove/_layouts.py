"""Layouts, repetition and independence: what gives other bits for the same values is wrong by itself, without a definition."""

from __future__ import annotations

import numpy as np

from ._groups import Groups
from ._libraries import Refused
from ._matrices import shapes, to_source
from ._result import Result, hexes

__all__ = ["check_layouts"]

N_REPEATS = 5
SIZE = 384  # rows and columns of the matrix that is repeated: several tiles, a ragged last one in 128s of other sizes


def check_layouts(call, granularity: str, multiple: int, result: Result, clock) -> None:
    rng = np.random.default_rng(17)
    rows, cols = shapes(granularity, multiple)[1]
    x = to_source(rng.standard_normal((rows, cols)), call.source)
    expected = _output(call, x)
    square = to_source(rng.standard_normal((cols, rows)), call.source)
    padded = np.full((rows, cols + 16), np.float32(np.nan))
    padded[:, :cols] = x
    doubled = np.repeat(x, 2, axis=0)
    doubled[1::2] *= 7
    shifted = np.zeros(x.size + 1, np.float32)
    shifted[1:] = x.reshape(-1)
    for case, view, wanted in (("transposed", square.T, None), ("rows with padding behind them", padded[:, :cols], expected),
                               ("every second row", doubled[::2], expected), ("from the second element of its memory on",
                               shifted[1:].reshape(rows, cols), expected)):
        if clock.is_over:
            return
        try:
            wanted = _output(call, np.ascontiguousarray(view)) if wanted is None else wanted
            _compare(result, case, view, wanted, _output(call, view))
        except Refused as refused:
            result.chose(f"not taken: {case}: {refused}")
    _alone(call, granularity, x, expected, result)
    _repeat(call, granularity, result, rng, clock)


def _output(call, x) -> tuple[np.ndarray, np.ndarray]:
    return call.raw(call.given(x))


def _compare(result, case, x, wanted, got) -> None:
    for name, a, b in zip(("codes", "scales"), wanted, got):
        a, b = np.ascontiguousarray(a).reshape(-1), np.ascontiguousarray(b).reshape(-1)
        if a.size != b.size:
            result.differ(f"{case}, {name}", f"a matrix {x.shape[0]} x {x.shape[1]}", f"{a.size} of them", b.size)
            continue
        is_equal = (a.view(np.uint8).reshape(a.size, -1) == b.view(np.uint8).reshape(a.size, -1)).all(axis=1)
        result.count(is_equal)
        if not is_equal.all():
            i = int(np.flatnonzero(~is_equal)[0])
            result.differ(f"{case}, {int((~is_equal).sum())} of {is_equal.size} {name}",
                          f"a matrix {x.shape[0]} x {x.shape[1]}, element {i}", hexes(a[i : i + 1]), hexes(b[i : i + 1]))


def _repeat(call, granularity, result, rng, clock) -> None:
    """The same bits each time; a race comes and goes."""
    tile = Groups((SIZE, SIZE), granularity).tile
    size = [max(SIZE // t, 1) * t for t in tile]
    x = to_source(rng.standard_normal(size), call.source)
    given = call.given(x)
    first = call.raw(given)
    for i in range(N_REPEATS):
        if clock.is_over:
            return
        _compare(result, f"call {i + 2} of the same matrix", x, first, call.raw(given))


def _alone(call, granularity, x, expected, result) -> None:
    """A row with scales of its own gives what it gives among others."""
    tile = Groups(x.shape, granularity).tile
    if granularity == "tensor" or x.shape[0] <= tile[0]:
        return
    try:
        codes, scale = _output(call, x[: tile[0]])
    except Refused as refused:
        result.chose(f"not taken: one row of groups alone: {refused}")
        return
    _compare(result, "a row of groups alone", x[: tile[0]], (expected[0][: tile[0]], expected[1].reshape(-1)[: scale.size]), (codes, scale))
