"""The smallest input on which something still differs."""

from __future__ import annotations

import numpy as np

__all__ = ["simplest", "smallest_part"]

MAX_TRIALS = 200


def simplest(values: np.ndarray, indices: np.ndarray) -> int:
    """Of elements at `indices` the one that is easiest to read: few significant bits, then near 1."""
    v = np.abs(values[indices].astype(np.float64))
    with np.errstate(all="ignore"):
        mantissa, exponent = np.frexp(v)
    bits = np.where(np.isfinite(v), mantissa, 0)
    words = (bits * 2.0**53).astype(np.int64)
    trailing = np.zeros(len(words), np.int64)
    for shift in (32, 16, 8, 4, 2, 1):
        is_even = (words & ((1 << shift) - 1)) == 0
        words = np.where(is_even, words >> shift, words)
        trailing += np.where(is_even, shift, 0)
    order = np.lexsort((np.signbit(values[indices]), np.abs(exponent), 53 - trailing))
    return int(indices[order[0]])


def smallest_part(n: int, differs) -> np.ndarray:
    """Fewest of the elements 0..n-1 with which `differs(indices)` still holds, by leaving out ever smaller parts.

    differs: takes ascending indices; true of all n. A difference that comes and goes ends the search.
    """
    kept, parts, trials = np.arange(n), 2, 0
    while len(kept) > 1 and trials < MAX_TRIALS:
        for rest in np.array_split(kept, min(parts, len(kept))):
            trial = np.setdiff1d(kept, rest, assume_unique=True)
            trials += 1
            if len(trial) > 0 and differs(trial):
                kept, parts = trial, max(parts - 1, 2)
                break
        else:
            if parts >= len(kept):
                return kept
            parts = min(2 * parts, len(kept))
    return kept
