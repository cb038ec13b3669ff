"""A step of the optimizer on the CPU: rows of addresses are kept, and those of gradients are written anew."""

from __future__ import annotations

import torch

from . import _optimizer as _c
from ._error import Error
from ._ranks import add_ranks, sharded_over
from ._tensors import DTYPES, address, gradient_of, local


class HostStep:
    """The steps of one optimizer whose parameters all lie in the CPU's memory."""

    def __init__(self, kernels):
        self._kernels = kernels
        self.attempt = 0  # of the last step; random bits are keyed by it
        self._last = {"grad_norm": 0.0, "skipped": 0, "applied": 0, "skips": 0}
        self._rows, self._entries = None, []
        self._sharded = None  # dimensions of meshes over which the norm is summed

    def forget(self, attempt: int | None = None) -> None:
        """States or parameters are others. attempt: steps that were attempted; None: as they are counted."""
        self._rows, self._entries, self._sharded = None, [], None
        if attempt is not None:
            self.attempt = attempt

    def read(self) -> dict:
        return {**self._last, "attempt": self.attempt}

    def run(self, optimizer, members) -> list:
        """One update of every parameter that has a gradient; returns those. members: (name, p, group number) of all."""
        if self._rows is None or len(self._rows) < len(members):
            self._rows, self._entries = (_c.Tensor * max(1, len(members)))(), []
        numbers = [_numbers(group, group["lr"]) for group in optimizer.param_groups]
        rows, entries, states, kept, count = self._rows, self._entries, optimizer.state, [], 0
        for name, p, index in members:
            gradient = p.grad
            if gradient is None:
                continue
            entry = entries[count] if count < len(entries) else None
            if entry is None or not entry.holds(p, states):
                entry = self._entry(rows[count], name, p, optimizer, members)
                entries[count:count + 1] = [entry]
            row = entry.row
            at = gradient.data_ptr() if entry.takes(gradient) else 0
            if at == 0:
                gradient = gradient_of(name, local(gradient), local(p))
                kept.append(gradient)
                at, row.gradient_dtype = gradient.data_ptr(), DTYPES[gradient.dtype]
                entry.gradient_dtype = gradient.dtype
            row.gradient = at
            if entry.numbers != numbers[index]:
                entry.numbers = numbers[index]
                row.lr, row.beta1, row.beta2, row.eps, row.weight_decay = numbers[index]
            count += 1
        params = [entry.p for entry in entries[:count]]
        self._step(optimizer, rows, count, params)
        del kept
        return params

    def count_beside(self, rows) -> None:
        """Counters of updates lie in the CPU's memory as they are made."""

    def run_given(self, optimizer, members, weights, gradients, states, rates) -> None:
        """One update of these tensors, as a compiled step has them. rates: learning rates by group."""
        rows = (_c.Tensor * max(1, len(members)))()
        numbers = [_numbers(group, rate) for group, rate in zip(optimizer.param_groups, rates)]
        kept = [gradient_of(name, g, w) for (name, _, _), g, w in zip(members, gradients, weights)]
        for row, (name, _, index), weight, gradient, state in zip(rows, members, weights, kept, states):
            _fill(row, name, weight, state)
            row.gradient, row.gradient_dtype = gradient.data_ptr(), DTYPES[gradient.dtype]
            row.lr, row.beta1, row.beta2, row.eps, row.weight_decay = numbers[index]
        self._step(optimizer, rows, len(members))

    def _step(self, optimizer, rows, count: int, params=()) -> None:
        squares = None
        if optimizer.clip > 0 or optimizer.skip_nonfinite:
            if self._sharded is None and params:
                self._sharded = sharded_over(params)
            if self._sharded:
                total = torch.tensor(self._kernels.squares(rows, count), dtype=torch.float64)
                add_ranks(total, self._sharded)
                squares = float(total)
        self.attempt += 1
        done = self._kernels.step(rows, count, float(optimizer.clip), self.attempt, optimizer.skip_nonfinite, squares)
        self._last.update(grad_norm=done.grad_norm, skipped=done.skipped)
        self._last["skips" if done.skipped else "applied"] += 1

    def _entry(self, row, name, p, optimizer, members):
        """A parameter's row, with everything but its gradient in it. Where it has no state yet, all without one begin."""
        state, weight = optimizer.state[p], local(p)
        together = [(name, p)] if state else [(other, q) for other, q, _ in members
                                              if q.grad is not None and not optimizer.state[q]]
        if any(local(q).device.type != "cpu" for _, q in together):
            raise Error("[optimizer] expected parameters on the CPU or on CUDA devices, got both", "device")
        optimizer._begin_or_check([(other, local(q), optimizer.state[q]) for other, q in together])
        _fill(row, name, weight, state)
        return _Entry(p, state, row, weight)


def _numbers(group, rate):
    return (float(rate), *map(float, group["betas"]), float(group["eps"]), float(group["weight_decay"]))


def _fill(row, name, weight, state) -> None:
    row.weight, row.n, row.dtype, row.name = weight.data_ptr(), weight.numel(), DTYPES[weight.dtype], _c.name_hash(name)
    row.m, row.v, row.master = address(state["exp_avg"]), address(state["exp_avg_sq"]), address(state.get("master"))
    row.m_meta, row.v_meta = address(state.get("exp_avg_meta")), address(state.get("exp_avg_sq_meta"))
    row.t = state["step"].data_ptr()


class _Entry:
    """A row that is filled but for its gradient, and what it was filled from."""

    __slots__ = ("address", "dtype", "gradient_dtype", "is_plain", "is_simple", "numbers", "p", "row", "state")

    def __init__(self, p, state, row, weight):
        self.p, self.state, self.row = p, state, row
        self.address, self.dtype = weight.data_ptr(), weight.dtype
        self.is_plain = not hasattr(p, "to_local")
        self.is_simple = self.is_plain and weight.is_contiguous()
        self.numbers = self.gradient_dtype = None

    def holds(self, p, states) -> bool:
        weight = p if self.is_plain else local(p)
        return self.p is p and self.state is states.get(p) and self.address == weight.data_ptr() \
            and self.dtype is weight.dtype and self.row.n == weight.numel()

    def takes(self, gradient) -> bool:
        """Whether it lies as the last one did, so that its address is all that is new."""
        return self.is_simple and gradient.dtype is self.gradient_dtype \
            and gradient.layout is torch.strided and gradient.is_contiguous() and gradient.numel() == self.row.n
