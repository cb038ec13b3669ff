"""Sums of products by the rule of a card's tensor cores (docs/numerics.md, "Sums of the tensor cores"), computed on the CPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import _native, formats
from .._arrays import bytes_of

__all__ = ["TILE", "Sums", "has_rule", "hypotheses", "tensor_sums"]

CHAINS = (0, 128, 32, 64, 256, 512)
SPLITS = (1, 2, 3, 4, 5, 6, 8)
TILE = 128  # parts of a split K are whole tiles
LONGEST = 256  # chain that one call adds to f32; longer ones are calls of their own


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
    codes = [formats.encode(m, t) for m, t in ((a, a_type), (b, b_type))]
    total, begin = None, 0
    for end in ends:
        part = _part([m[:, begin:end] for m in codes], (a_type, b_type), sums.chain, capability)
        total, begin = part if total is None else total + part, end
    return total


def _part(codes: list[np.ndarray], types: tuple[str, str], chain: int, capability: int) -> np.ndarray:
    """Of one part of a split K."""
    k = codes[0].shape[1]
    if chain > LONGEST:
        chains = [_part([m[:, i : i + chain] for m in codes], types, 0, capability) for i in range(0, k, chain)]
        return sum(chains[1:], np.float32(0) + chains[0])
    y = np.empty((len(codes[0]), len(codes[1])), np.float32)
    x, w = (np.ascontiguousarray(m) for m in codes)
    _native.tensor_sums(_native.SumsCall(capability, *types, *y.shape, k, chain), bytes_of(x), bytes_of(w), bytes_of(y))
    return y


def hypotheses(k: int):
    """Ways in which a card may have added K products, likely ones first."""
    for split in SPLITS:
        if split > 1 and -(-k // TILE) < split:
            return
        for chain in CHAINS if split == 1 else CHAINS[:2]:
            if chain < k:
                yield Sums(chain, split)
