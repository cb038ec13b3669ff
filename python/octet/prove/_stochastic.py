"""Stochastic rounding: the two neighbours alone, as often as they must come, and each independently of those beside it."""

from __future__ import annotations

import numpy as np

from ._groups import Groups
from ._inputs import grid
from ._matrices import to_source
from ._result import Result

__all__ = ["check_stochastic", "check_stochastic_cast"]

N_ERRORS = 5.0  # standard errors
FRACTIONS = (0.0, 1 / 16, 1 / 4, 1 / 2, 3 / 4, 15 / 16, 21 / 64)  # the last where the source holds it: four bits are too few
LAGS = (1, 2, 3, 4, 8, 16, 32, 64, 128)
N = 1 << 16


def _places(points, target) -> list[int]:
    return [i for i in (3, len(points) // 3, len(points) // 2, 2 * len(points) // 3) if points[i + 1] < target]


def _cases(format: str, source: str, target: float):
    """(value, lower, upper, fraction): values between two neighbours below the target, those alone that the source holds."""
    points = grid(format)
    for i in _places(points, target):
        for fraction in FRACTIONS:
            for sign in (1.0, -1.0):
                value = np.float32(sign * (points[i] + fraction * (points[i + 1] - points[i])))
                if to_source(value.reshape(1), source)[0] == value:
                    yield value, sign * points[i], sign * points[i + 1], fraction


def check_stochastic_cast(call, format: str, source: str, result: Result) -> None:
    """Arrays of one value between two neighbours. call: of f32 values that the source holds, gives values in f32."""
    for value, lower, upper, fraction in _cases(format, source, grid(format)[-2]):
        _judge(result, call(np.full(N, value)), np.float64(value), lower, upper, fraction)
        if result.first is not None:
            return


def check_stochastic(call, format: str, granularity: str, target: float, result: Result, clock) -> None:
    """Matrices of one value between two neighbours; the first element of each group is the target, so that its scale is 1."""
    tile = Groups((256, 256), granularity).tile
    shape = (max(256 // tile[0], 1) * tile[0], max(256 // tile[1], 1) * tile[1])
    groups = Groups(shape, granularity)
    first = np.unique(groups.ids.reshape(-1), return_index=True)[1]
    for value, lower, upper, fraction in _cases(format, call.source, target):
        x = np.full(shape, value)
        x.reshape(-1)[first] = target
        values, scale = call(x)
        kept = np.delete(values.reshape(-1) * scale[groups.ids].reshape(-1), first)
        _judge(result, kept, np.float64(value), lower, upper, fraction)
        if result.first is not None or clock.is_over:
            return


def _judge(result, kept, value, lower, upper, fraction) -> None:
    is_up, is_low = kept == np.float32(upper), kept == np.float32(lower)
    hits = is_low | (is_up if fraction > 0 else False)
    result.count(hits)
    shown = f"{value:.9g} = {lower:.9g} + {fraction:g} x {upper - lower:.9g}"
    if not hits.all():
        got = kept[np.flatnonzero(~hits)[0]]
        result.differ("a neighbour" if fraction > 0 else "a value of the format stays", shown,
                      f"{lower:.9g} or {upper:.9g}" if fraction > 0 else f"{lower:.9g}", f"{got:.9g}")
        return
    if fraction == 0:
        return
    n, rate = kept.size, float(is_up.mean())
    error = np.sqrt(fraction * (1 - fraction) / n)
    result.count([abs(rate - fraction) <= N_ERRORS * error])
    if abs(rate - fraction) > N_ERRORS * error:
        result.differ(f"bias of {n} values", shown, f"rounded up {fraction:.5f} +- {error:.5f} of the time", f"{rate:.5f}")
        return
    centred = is_up - rate
    for lag in LAGS:
        together = float((centred[lag:] * centred[:-lag]).mean()) / (fraction * (1 - fraction))
        bound = N_ERRORS / np.sqrt(n - lag)
        result.count([abs(together) <= bound])
        if abs(together) > bound:
            result.differ(f"values {lag} apart", shown, f"independent: correlation within {bound:.4f}", f"{together:.4f}")
            return
