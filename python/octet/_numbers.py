"""What the optimizer asks of its numbers."""

from __future__ import annotations

import numbers

import torch

from ._error import Error

_NUMBERS = ("lr", "eps", "weight_decay", "clip")


def check_numbers(given: dict) -> None:
    """Those of `given` that are there: lr, betas, eps, weight_decay, clip. Raises octet.Error."""
    for name in _NUMBERS:
        if name in given and not (_is_number(given[name]) and float(given[name]) >= 0):
            raise Error(f"[optimizer] {name}: expected a number, 0 or more, got {_shown(given[name])}")
    if "betas" in given:
        betas = given["betas"]
        is_right = isinstance(betas, (tuple, list)) and len(betas) == 2 and all(map(_is_number, betas)) \
            and all(0 <= float(beta) < 1 for beta in betas)
        if not is_right:
            raise Error(f"[optimizer] betas: expected two numbers in [0, 1), got {_shown(betas)}")


def _is_number(value) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.is_complex()
    return isinstance(value, numbers.Real)


def _shown(value) -> str:
    return f"a tensor {list(value.shape)}" if isinstance(value, torch.Tensor) and value.numel() != 1 else repr(value)
