"""States that were stored, ours of any format or torch.optim.AdamW's, as states of an optimizer's parameters."""

from __future__ import annotations

import numbers

import torch

from . import _optimizer as _c
from ._checks import shown
from ._error import Error
from ._state_memory import begin
from ._tensors import DTYPES, address, expect_own_master, fitting, local, take_master

_MOMENTS = ("exp_avg", "exp_avg_sq")
_KEYS = {"step", "master", *_MOMENTS, *(key + "_meta" for key in _MOMENTS)}


def read_states(optimizer, state_dict) -> dict:
    """The states by parameter, in memory of their own. Raises octet.Error where one does not fit; nothing has changed then."""
    check_form(state_dict)
    saved, groups = state_dict["param_groups"], optimizer.param_groups
    for group in saved:
        optimizer._check_group({**optimizer.defaults, **{key: value for key, value in group.items() if key in optimizer.defaults}})
    _check(saved, groups, state_dict["state"])
    order = [index for group in saved for index in group["params"]]
    parameters = [p for group in groups for p in group["params"]]
    from_format = _format_of(saved[0]) if saved else ()
    saved_of = {p: state_dict["state"][index] for p, index in zip(parameters, order) if state_dict["state"].get(index)}
    loaded = {p: {} for p in saved_of}
    begin(optimizer._kernels, [(local(p), state) for p, state in loaded.items()])
    if loaded:
        source = _Source(from_format, optimizer)
        for p, state in loaded.items():
            source.give(local(p), state, {key: _own(value) for key, value in saved_of[p].items()})
    return loaded


def check_form(state_dict) -> None:
    """Raises octet.Error for what is no state_dict at all."""
    is_right = isinstance(state_dict, dict) and isinstance(state_dict.get("state"), dict) \
        and isinstance(state_dict.get("param_groups"), (list, tuple)) \
        and all(isinstance(group, dict) and isinstance(group.get("params"), (list, tuple)) for group in state_dict["param_groups"]) \
        and all(state is None or isinstance(state, dict) for state in state_dict["state"].values())
    if not is_right:
        raise Error("[optimizer] expected a dict with state and param_groups, as state_dict() gives it, got another one", "bad_data")


def _format_of(group) -> tuple:
    """Names of m's and v's format and of powers, and elements of a group."""
    format = group.get("format", ("f32", "f32", "exact", 128))
    is_right = isinstance(format, (list, tuple)) and len(format) == 4 and all(isinstance(one, str) for one in format[:3])
    if not is_right:
        raise Error(f"[optimizer] format: expected two state formats, powers and a group, got {shown(format)}", "bad_data")
    return tuple(format)


def _steps_of(saved) -> int:
    step = saved["step"]
    if torch.is_tensor(step) and step.numel() == 1:
        step = step.item()
    if isinstance(step, bool) or not isinstance(step, numbers.Real) or not 0 <= step < 2**53 or step != int(step):
        raise Error(f"[optimizer] step: expected how many steps there were, got {shown(saved['step'])}", "bad_data")
    return int(step)


def _check(saved, groups, states) -> None:
    counts = [len(group["params"]) for group in saved], [len(group["params"]) for group in groups]
    if counts[0] != counts[1]:
        raise Error(f"[optimizer] expected groups of {counts[1]} parameters, got {counts[0]}", "bad_data")
    for key in ("amsgrad", "maximize"):
        if any(group.get(key) for group in saved):
            raise Error(f"[optimizer] expected the state of an AdamW without {key}, got one with it", "bad_data")
    if any(group.get("decoupled_weight_decay") is False and group.get("weight_decay") for group in saved):
        raise Error("[optimizer] expected the state of an AdamW, got an Adam's, whose weight_decay is a part of gradients", "bad_data")
    for state in filter(None, states.values()):
        missing, more = {"step", *_MOMENTS} - state.keys(), state.keys() - _KEYS
        if missing or more:
            raise Error(f"[optimizer] expected the state of an AdamW, got one {'without' if missing else 'with'} "
                        f"{sorted(missing or more)[0]}", "bad_data")
    check_places(saved, groups, states)


def check_places(saved, groups, states) -> None:
    """Whether states are of these parameters, in this order: a state of none, and names in another order, are errors."""
    order = {index for group in saved for index in group["params"]}
    strange = [index for index, state in states.items() if state and index not in order]
    if strange:
        raise Error(f"[optimizer] expected states of {len(order)} parameters, got one of {strange[0]!r}, which no group holds", "bad_data")
    for key in ("names", "param_names"):
        before, now = ([name for group in given for name in group.get(key) or []] for given in (saved, groups))
        if before != now and sorted(before) == sorted(now):
            name = next(a for a, b in zip(before, now) if a != b)
            raise Error(f"[optimizer] expected states in the order of the parameters, got {name} at another place", "bad_data")


def _own(value):
    """This rank's part of a sharded state."""
    return value.to_local() if hasattr(value, "to_local") else value


class _Source:
    """States in the format in which they were stored."""

    def __init__(self, from_format, optimizer):
        self._format, self._is_same = from_format, from_format == optimizer._format
        self._kernels = _c.Kernels(from_format[0], from_format[1], "fp32", from_format[2], from_format[3], 0, 1)
        self._to = optimizer._kernels

    def give(self, weight, state, saved) -> None:
        """A saved state of a weight, in place of one that has just begun."""
        state["step"] = torch.tensor(_steps_of(saved))
        for which, key in enumerate(_MOMENTS):
            moment, meta = saved[key], saved.get(key + "_meta")
            if not torch.is_tensor(moment):
                raise Error(f"[optimizer] {key}: expected a tensor, got {type(moment).__name__}", "bad_data")
            if moment.shape != weight.shape:
                raise Error(f"[optimizer] {key}: expected shape {list(weight.shape)}, got {list(moment.shape)}", "bad_data")
            if self._is_same and moment.dtype == state[key].dtype:
                state[key].copy_(moment)
                if key + "_meta" in state:
                    state[key + "_meta"].copy_(fitting(meta, state[key + "_meta"], key))
            else:
                encode(self._to, which, self._values(weight, which, moment, meta), state)
        if saved.get("master") is None:
            return
        if "master" in state:
            take_master(weight, state["master"], saved["master"])
        elif weight.dtype == torch.float32:
            expect_own_master("master", weight, saved["master"])

    def _values(self, weight, which: int, moment, meta):
        """As f32 on the CPU."""
        layout = self._kernels.layout(weight.numel(), DTYPES[weight.dtype])
        is_wide = (layout.m_bytes, layout.v_bytes)[which] > 1
        is_right = moment.is_floating_point() if is_wide else moment.dtype == torch.uint8
        if not is_right:
            raise Error(f"[optimizer] {_MOMENTS[which]}: expected {'numbers' if is_wide else 'codes'} of {self._format[which]}, got "
                        f"{moment.dtype}", "bad_data")
        if is_wide:
            return torch.empty_like(weight, dtype=torch.float32, device="cpu").copy_(moment)
        codes = torch.empty_like(weight, dtype=torch.uint8, device="cpu").copy_(moment)
        groups = (layout.m_groups, layout.v_groups)[which]
        words = fitting(meta, torch.empty(groups, dtype=torch.int32), _MOMENTS[which]).cpu().contiguous()
        return decoded(self._kernels, which, {_MOMENTS[which]: codes, _MOMENTS[which] + "_meta": words})


def decoded(kernels, which: int, state):
    """A moment (0: m, 1: v) of a state as f32, where it lies."""
    key = _MOMENTS[which]
    stored, meta = state[key].cpu(), state.get(key + "_meta")
    meta = None if meta is None else meta.cpu()
    values = torch.empty_like(stored, dtype=torch.float32)
    kernels.decode(which, stored.data_ptr(), address(meta), values.data_ptr(), values.numel())
    return values.to(state[key].device)


def encode(kernels, which: int, values, state) -> None:
    """Stores f32 values on the CPU as a moment of a state."""
    key = _MOMENTS[which]
    stored, meta = torch.empty_like(state[key], device="cpu"), state.get(key + "_meta")
    words = None if meta is None else torch.empty_like(meta, device="cpu")
    kernels.encode(which, values.data_ptr(), stored.data_ptr(), address(words), values.numel())
    state[key].copy_(stored)
    if meta is not None:
        meta.copy_(words)
