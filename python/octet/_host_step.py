"""A step of the optimizer on the CPU: rows of addresses are kept, and those of gradients are written anew."""

from __future__ import annotations

import ctypes
from array import array
from itertools import groupby

import torch

from . import _optimizer as _c
from ._error import Error
from ._ranks import add_ranks
from ._step_plan import Plan, addresses_of
from ._tensors import DTYPES, address, gradient_of, local

_ROW_WORDS = ctypes.sizeof(_c.Tensor) // 8
_NUMBERS = ("lr", "beta1", "beta2", "eps", "weight_decay")


class _Rows:
    """The rows of a plan. Fields of many are written at once, through views of their memory."""

    def __init__(self, count: int):
        self.tensors = (_c.Tensor * max(1, count))()
        self.count = count
        self._words = memoryview(self.tensors).cast("B").cast("Q")
        self._floats = memoryview(self.tensors).cast("B").cast("d")

    def write_gradients(self, addresses) -> None:
        self._words[_word("gradient"):self.count * _ROW_WORDS:_ROW_WORDS] = addresses

    def write_numbers(self, numbers, first: int, size: int) -> None:
        for field, value in zip(_NUMBERS, numbers):
            start = first * _ROW_WORDS + _word(field)
            self._floats[start:(first + size) * _ROW_WORDS:_ROW_WORDS] = array("d", [value]) * size


def _word(field: str) -> int:
    return getattr(_c.Tensor, field).offset // 8


class HostStep:
    """The steps of one optimizer whose parameters all lie in the CPU's memory."""

    def __init__(self, kernels):
        self._kernels = kernels
        self.attempt = 0  # of the last step; random bits are keyed by it
        self._last = {"grad_norm": 0.0, "skipped": 0, "applied": 0, "skips": 0}
        self._plan = self._rows = None
        self._runs, self._numbers = [], {}  # (group number, first row, rows); numbers that rows have, by group

    def forget(self, attempt: int | None = None) -> None:
        """States or parameters are others. attempt: steps that were attempted; None: as they are counted."""
        self._plan = self._rows = None
        if attempt is not None:
            self.attempt = attempt

    def read(self) -> dict:
        return {**self._last, "attempt": self.attempt}

    def run(self, optimizer, params) -> list:
        """One update of every parameter that has a gradient; returns those. params: all that stand in the groups."""
        plan = self._plan
        found = plan.find(params, optimizer.state) if plan is not None and plan.knows_ranks(optimizer) else None
        if found is None:
            self.forget()
            found = self._make(optimizer, optimizer._all_members())
        params, _, addresses = found
        if addresses != self._plan.written:
            self._rows.write_gradients(addresses)
            self._plan.written = addresses
        for group, first, size in self._runs:
            numbers = _numbers(optimizer.param_groups[group], optimizer.param_groups[group]["lr"])
            if self._numbers.get(group) != numbers:
                self._numbers[group] = numbers
                self._rows.write_numbers(numbers, first, size)
        self._step(optimizer, self._rows.tensors, self._rows.count, self._plan.sharded)
        return params

    def count_beside(self, rows) -> None:
        """Counters of updates lie in the CPU's memory as they are made."""

    def run_given(self, optimizer, members, weights, gradients, states, rates) -> None:
        """One update of these tensors, as a compiled step has them. rates: learning rates by group."""
        rows = (_c.Tensor * max(1, len(members)))()
        numbers = [_numbers(group, rate) for group, rate in zip(optimizer.param_groups, rates)]
        kept = [gradient_of(name, g, w) for (name, _, _), g, w in zip(members, gradients, weights)]
        for row, (name, _, index), weight, gradient, state in zip(rows, members, weights, kept, states):
            _fill(row, name, weight, gradient, state)
            row.lr, row.beta1, row.beta2, row.eps, row.weight_decay = numbers[index]
        self._step(optimizer, rows, len(members))

    def _step(self, optimizer, rows, count: int, sharded=None) -> None:
        squares = None
        if sharded and (optimizer.clip > 0 or optimizer.skip_nonfinite):
            total = torch.tensor(self._kernels.squares(rows, count), dtype=torch.float64)
            add_ranks(total, sharded)
            squares = float(total)
        self.attempt += 1
        done = self._kernels.step(rows, count, float(optimizer.clip), self.attempt, optimizer.skip_nonfinite, squares)
        self._last.update(grad_norm=done.grad_norm, skipped=done.skipped)
        self._last["skips" if done.skipped else "applied"] += 1

    def _make(self, optimizer, members):
        """Plans all that have gradients, and begins their states; what Plan.find() gives."""
        indices = [i for i, (_, p, _) in enumerate(members) if p.grad is not None]
        active = [members[i] for i in indices]
        weights = [local(p) for _, p, _ in active]
        if any(weight.device.type != "cpu" for weight in weights):
            raise Error("[optimizer] expected parameters on the CPU or on CUDA devices, got both", "device")
        states = [optimizer.state[p] for _, p, _ in active]
        optimizer._begin_or_check([(name, weight, state) for (name, _, _), weight, state in zip(active, weights, states)])
        gradients = [gradient_of(name, local(p.grad), weight) for (name, p, _), weight in zip(active, weights)]
        plan, rows = Plan(members, indices, weights, gradients), _Rows(len(indices))
        for row, (name, _, _), weight, gradient, state in zip(rows.tensors, active, weights, gradients, states):
            _fill(row, name, weight, gradient, state)
        plan.watch(members, optimizer)
        self._plan, self._rows, self._numbers, self._runs = plan, rows, {}, _runs_of(active)
        return [p for _, p, _ in active], gradients, addresses_of(gradients)


def _runs_of(members) -> list:
    """(group number, first, how many) of members one after another."""
    runs, first = [], 0
    for group, same in groupby(members, key=lambda member: member[2]):
        size = len(list(same))
        runs.append((group, first, size))
        first += size
    return runs


def _numbers(group, rate):
    return (float(rate), *map(float, group["betas"]), float(group["eps"]), float(group["weight_decay"]))


def _fill(row, name, weight, gradient, state) -> None:
    row.weight, row.n, row.dtype, row.name = weight.data_ptr(), weight.numel(), DTYPES[weight.dtype], _c.name_hash(name)
    row.gradient, row.gradient_dtype = gradient.data_ptr(), DTYPES[gradient.dtype]
    row.m, row.v, row.master = address(state["exp_avg"]), address(state["exp_avg_sq"]), address(state.get("master"))
    row.m_meta, row.v_meta = address(state.get("exp_avg_meta")), address(state.get("exp_avg_sq_meta"))
    row.t = state["step"].data_ptr()
