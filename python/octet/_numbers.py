"""What the optimizer asks of its numbers."""

from __future__ import annotations

import numbers
import struct
import warnings

import torch

from ._error import Error

_NUMBERS = ("lr", "eps", "weight_decay", "clip")
_MAX_BETA_ERROR = 0.01  # of 1 - beta: what is worth a warning


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
        for beta in map(float, betas):
            _check_in_f32(beta)


def _check_in_f32(beta: float) -> None:
    """A moment fades by beta in f32; what it takes of a gradient, and its bias correction, follow from beta itself."""
    (rounded,) = struct.unpack("f", struct.pack("f", beta))
    if rounded == 1:
        raise Error(f"[optimizer] betas: expected numbers below 1 in f32, got {beta!r}")
    error = abs((1 - rounded) - (1 - beta)) / (1 - beta)
    if error > _MAX_BETA_ERROR:
        warnings.warn(f"[optimizer] betas: {beta!r} is {rounded:.9g} in f32: the 1 - beta by which a moment fades is off by "
                      f"{error:.1%}", stacklevel=4)


def _is_number(value) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.is_complex()
    return isinstance(value, numbers.Real)


def _shown(value) -> str:
    return f"a tensor {list(value.shape)}" if isinstance(value, torch.Tensor) and value.numel() != 1 else repr(value)
