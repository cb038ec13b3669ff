"""Sums of products by the rule of a card's tensor cores (docs/numerics.md, "Sums of the tensor cores"), computed on the CPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import _native
from .._arrays import bytes_of

__all__ = ["TILE", "Sums", "has_rule", "hypotheses", "tensor_sums"]

CHAINS = (0, 128, 32, 64, 256, 512)
SPLITS = (1, 2, 3, 4, 5, 6, 8)
TILE = 128  # parts of a split K are whole tiles


@dataclass(frozen=True)
class Sums:
    """chain: products of one chain before f32, 0: all of K.  split: parts of K whose sums are added in f32."""

    chain: int = 0
    split: int = 1

    def __str__(self) -> str:
        way = "one chain (fast accumulation)" if self.chain == 0 else f"promoted every {self.chain}"
        return way if self.split == 1 else f"{way}, K split in {self.split}"


def has_rule(a: str, b: str, capability: int = 90) -> bool:
    return _native.promoted_chain(_native.SumsCall(capability, a, b, 0, 0, 0, 0)) is not None


def tensor_sums(a: np.ndarray, b: np.ndarray, a_type: str, b_type: str, sums: Sums = Sums(), capability: int = 90) -> np.ndarray:
    """a [M, K], b [N, K], f32 values of their types -> a b^T, f32 [M, N], bit for bit as the card adds."""
    k = a.shape[1]
    tiles = -(-k // TILE)
    ends = [min(k, TILE * (tiles * (i + 1) // sums.split)) for i in range(sums.split)]
    total, begin = None, 0
    for end in ends:
        part = np.empty((a.shape[0], b.shape[0]), np.float32)
        x, w = (np.ascontiguousarray(m[:, begin:end], np.float32) for m in (a, b))
        call = _native.SumsCall(capability, a_type, b_type, len(a), len(b), end - begin, sums.chain)
        _native.tensor_sums(call, bytes_of(x), bytes_of(w), bytes_of(part))
        total, begin = part if total is None else total + part, end
    return total


def hypotheses(k: int):
    """Ways in which a card may have added K products, likely ones first."""
    for split in SPLITS:
        if split > 1 and -(-k // TILE) < split:
            return
        for chain in CHAINS if split == 1 else CHAINS[:2]:
            if chain < k:
                yield Sums(chain, split)
