"""What the optimizer asks of its numbers."""

from __future__ import annotations

import difflib
import math
import numbers
import struct
import warnings

import torch

from ._checks import MAX_F32, shown
from ._error import Error

_NUMBERS = ("lr", "eps", "weight_decay", "clip")
_NEVER = ("amsgrad", "maximize", "differentiable")  # what another update would be
_OF_UPDATES = ("betas", "momentum", "dampening", "nesterov", "ns_steps", "ns_coefficients", "adjust_lr_fn", "clip")
_LONG = ("weight_decay", "betas", "momentum", "dampening", "nesterov")  # names that one knows by most of their letters
_MAX_BETA_ERROR = 0.01  # of 1 - beta: what is worth a warning


def check_numbers(given: dict) -> None:
    """Those of `given` that are there: lr, betas, eps, weight_decay, clip. Raises octet.Error."""
    for name in _NUMBERS:
        if name not in given or (name == "clip" and given[name] == math.inf):  # which measures the norm alone
            continue
        if not (_is_number(given[name]) and 0 <= given[name] <= MAX_F32):
            raise Error(f"[optimizer] {name}: expected a number, 0 or more, got {_shown(given[name])}")
    if "betas" in given:
        betas = given["betas"]
        is_right = isinstance(betas, (tuple, list)) and len(betas) == 2 and all(map(_is_number, betas)) \
            and all(0 <= beta < 1 for beta in betas)
        if not is_right:
            raise Error(f"[optimizer] betas: expected two numbers in [0, 1), got {_shown(betas)}")
        for beta in map(float, betas):
            _check_in_f32(beta)


def check_keys(group: dict, fixed, defaults) -> None:
    """Keys of a group that say another update than one with `defaults`, or what all groups have in common (`fixed`). Raises
    octet.Error."""
    for key in fixed:
        if key in group:
            raise Error(f"[optimizer] {key}: expected it for the whole optimizer, got it in a group")
    for key in group:
        meant = difflib.get_close_matches(str(key), _LONG, 1, 0.85)
        if meant and key not in _LONG and key not in defaults:
            raise Error(f"[optimizer] {key}: expected a key of this optimizer or one of yours, got a name beside {meant[0]}")
    for key in _OF_UPDATES:
        if key in group and key not in defaults:
            raise Error(f"[optimizer] {key}: expected none in a group, got {group[key]!r}: this optimizer has no such number")
    for key in _NEVER:
        if group.get(key) and key not in defaults:
            raise Error(f"[optimizer] {key}: expected False, got {group[key]}: this optimizer has no such update")
    if group.get("decoupled_weight_decay") is False and group.get("weight_decay"):
        raise Error("[optimizer] decoupled_weight_decay: expected True beside a weight_decay, got False: this optimizer has no such "
                    "update")


def check_integer(name: str, value, least: int, most: int) -> None:
    is_right = isinstance(value, numbers.Integral) and not isinstance(value, bool) and least <= value <= most
    if not is_right:
        raise Error(f"[optimizer] {name}: expected an integer from {least} to {most}, got {value!r}")


class Watched:
    """What stands in groups, which their owner may change between steps: what has changed is checked."""

    def __init__(self, check, fixed):
        """fixed: keys that stand in no group, as all groups have them in common."""
        self._check, self._seen = check, []
        self._keys = tuple({*_NUMBERS, *_OF_UPDATES, *_NEVER, "decoupled_weight_decay", *fixed})
        self.betas = []  # checked, so that a warning is told once

    def look(self, groups) -> None:
        rows = [[_kept(value) for value in map(group.get, self._keys)] for group in groups]
        if rows == self._seen:
            return
        for group in groups:
            self._check({key: value for key, value in group.items()
                         if not (key in _NUMBERS and isinstance(value, torch.Tensor) and value.is_cuda)  # whose value would be waited for
                         and not (key == "betas" and _kept(value) in self.betas)})
        self._seen, self.betas = rows, [_kept(group.get("betas")) for group in groups]


def _kept(value):
    """What a later value is compared with: a list and a number of the host may change where they stand; other tensors are not compared."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 and value.device.type == "cpu" else id(value)
    return tuple(value) if isinstance(value, list) else value


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
        return value.numel() == 1 and not value.is_complex() and value.dtype != torch.bool
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _shown(value) -> str:
    return f"a tensor {list(value.shape)}" if isinstance(value, torch.Tensor) and value.numel() != 1 else shown(value)
