"""A step of the optimizer on CUDA devices: everything is queued on PyTorch's current streams, nothing waits.

What tensors lie where is planned once and written to the device; a step then checks that it still holds, hands over the
addresses of gradients where they are others, and launches. Counters, norm and the decision to skip stay on the device.
"""

from __future__ import annotations

import struct
from array import array

import torch

from . import _cuda_optimizer as _cuda
from . import _optimizer as _c
from ._error import Error
from ._ranks import add_ranks
from ._step_plan import Plan, addresses_of
from ._tensors import DTYPES, address, gradient_of, local

_KIND = "cuda"  # of devices
_SQUARES, _ATTEMPT = 0, 6  # of a control: its f64 and its u32 with these numbers


class Control:
    """What a step leaves on a device: OctetCudaControl."""

    def __init__(self, device, attempt: int):
        self.memory = torch.zeros(_cuda.CONTROL_BYTES, dtype=torch.uint8, device=device)
        self.squares = self.memory.view(torch.float64)[_SQUARES]
        self.memory.view(torch.int32)[_ATTEMPT] = attempt

    def read(self) -> dict:
        """Waits for the device."""
        names = ("squares", "grad_norm", "grad_scale", "skipped", "attempt", "reserved", "applied", "skips")
        return dict(zip(names, struct.unpack("<ddfIIIqq", bytes(self.memory.cpu().tolist())[:48])))


class Part:
    """The parameters of one device: their kernels, their table, and what was written there last."""

    def __init__(self, device, kernels, control: Control):
        self.device, self.kernels, self.control = device, kernels, control
        self.table = self.numbers = self.rates = None

    def place(self, rows, stream: int) -> None:
        """rows: dicts of the fields of a Weight."""
        weights = (_cuda.Weight * max(1, len(rows)))()
        for weight, row in zip(weights, rows):
            for field, value in row.items():
                setattr(weight, field, value)
        n_bytes = self.kernels.plan(weights, len(rows))
        self.table = torch.empty(max(256, n_bytes), dtype=torch.uint8, device=self.device)
        self.kernels.place(self.table.data_ptr(), self.control.memory.data_ptr(), stream)

    def write_numbers(self, groups, rates, stream: int) -> None:
        """Learning rates and the like, where they are others than before."""
        numbers = [(*group["betas"], group["eps"], group["weight_decay"], *self._rate(rate, i, len(groups)))
                   for i, (group, rate) in enumerate(zip(groups, rates))]
        if numbers != self.numbers:
            rows = (_cuda.Numbers * len(numbers))(*(_cuda.Numbers(*map(_plain, number)) for number in numbers))
            self.kernels.write_numbers(rows, len(numbers), stream)
            self.numbers = numbers

    def _rate(self, lr, index: int, count: int):
        """The rate, or where the device has it."""
        if not torch.is_tensor(lr) or lr.device.type == "cpu":
            return float(lr), None
        if lr.device == self.device and lr.dtype == torch.float32:
            return 0.0, lr.data_ptr()
        if self.rates is None or len(self.rates) < count:
            self.rates = torch.zeros(count, dtype=torch.float32, device=self.device)
        self.rates[index].copy_(lr.reshape(()), non_blocking=True)
        return 0.0, self.rates[index].data_ptr()

    def write_gradients(self, addresses: array, stream: int) -> None:
        self.kernels.write_gradients(addresses.buffer_info()[0], len(addresses), stream)


def _plain(number):
    return float(number) if torch.is_tensor(number) else number


class DevicePlan(Plan):
    """A plan with what was written to the devices. Once a CUDA graph has captured it, it keeps all that the graph will touch."""

    def __init__(self, members, indices, weights, gradients):
        super().__init__(members, indices, weights, gradients)
        self.parts: list = []  # (part, indices of its weights)
        self.states_lie = None  # addresses of states that a caller gave
        self.is_captured, self.alignment, self.kept = False, [], []

    def keep(self, weights, states) -> None:
        """What a graph captures: it is touched at every replay, whatever becomes of the tensors."""
        self.kept.append(([local(weight) for weight in weights], [[one.detach() for one in state.values()] for state in states]))


class DeviceStep:
    """The steps of one optimizer, whose parameters all lie on CUDA devices."""

    def __init__(self, kernels, group: int, seed: int):
        self._kernels, self._group, self._seed = kernels, group, seed
        self.is_joint = True  # False: every tensor has launches of its own, for comparisons
        self.controls: dict = {}  # by device
        self._plan = self._given_plan = None
        self._captured: list = []  # plans that a CUDA graph knows

    def forget(self, attempt: int | None = None) -> None:
        """States or parameters are others. attempt: steps that were attempted; None: as they are counted."""
        self._plan, self._given_plan = self._drop(self._plan), self._drop(self._given_plan)
        if attempt is not None:
            self.controls = {}

    def read(self) -> dict | None:
        """The control of the first device, or None before the first step. Waits for the device."""
        return next(iter(self.controls.values())).read() if self.controls else None

    def run(self, optimizer, params) -> list:
        """One update of every parameter that has a gradient; returns those. params: all that stand in the groups."""
        is_capturing = torch.cuda.is_current_stream_capturing()
        plan = self._plan
        found = plan.find(params, optimizer.state) if plan is not None and plan.knows_ranks(optimizer) else None
        if found is None or not self._is_as_captured(plan, found[2], is_capturing):
            _expect_no_capture(is_capturing)
            self._plan = self._drop(plan)
            plan, found = self._plan_all(optimizer, optimizer._all_members())
            self._plan = plan
        if is_capturing:
            plan.keep(found[0], [optimizer.state[p] for p in found[0]])
        rates = [group["lr"] for group in optimizer.param_groups]
        self._launch(optimizer, plan, found[2], rates, is_capturing)
        return found[0]

    def run_given(self, optimizer, members, weights, gradients, states, rates) -> None:
        """One update of these tensors, as a compiled step has them. rates: learning rates by group."""
        full = [i for i, weight in enumerate(weights) if weight.numel() > 0]
        members, weights, gradients, states = ([rows[i] for i in full] for rows in (members, weights, gradients, states))
        is_capturing = torch.cuda.is_current_stream_capturing()
        plan, found = self._given_plan, None
        lie = [addresses_of(state.values()) for state in states]
        if plan is not None and ([name for name, _, _ in members], lie) == (plan.names, plan.states_lie):
            found = plan.given(weights, gradients)
        if found is None or not self._is_as_captured(plan, found[1], is_capturing):
            _expect_no_capture(is_capturing)
            self._given_plan = self._drop(plan)
            gradients = [gradient_of(name, g, w) for (name, _, _), g, w in zip(members, gradients, weights)]
            plan = self._given_plan = self._make(optimizer, members, range(len(members)), (weights, gradients, states))
            plan.states_lie = [addresses_of(state.values()) for state in states]  # counters have moved to the devices
            found = gradients, addresses_of(gradients)
        if is_capturing:
            plan.keep(weights, states)
        self._launch(optimizer, plan, found[1], rates, is_capturing)

    def count_beside(self, rows) -> None:
        """Puts counters of updates on the devices of their weights. rows: (weight, state)."""
        for device in dict.fromkeys(weight.device for weight, _ in rows):
            _count_on(device, [state for weight, state in rows if weight.device == device])

    def write_rates(self, groups) -> None:
        """Learning rates as they are now, for graphs that are replayed."""
        for plan in (self._plan, self._given_plan):
            for part, _ in plan.parts if plan else ():
                part.write_numbers(groups, [group["lr"] for group in groups], _stream(part.device))

    def _launch(self, optimizer, plan, addresses, rates, is_capturing) -> None:
        is_new = addresses != plan.written
        clip, has_squares = float(optimizer.clip), optimizer.clip > 0 or optimizer.skip_nonfinite
        for part, indices in plan.parts:
            stream = _stream(part.device)
            if not is_capturing:
                part.write_numbers(optimizer.param_groups, rates, stream)
            if is_new or plan.is_captured:  # a graph writes its own
                part.write_gradients(addresses if len(plan.parts) == 1 else array("Q", [addresses[i] for i in indices]), stream)
            if has_squares:
                part.kernels.squares(stream)
        if has_squares:
            _join_squares(plan)
        for part, _ in plan.parts:
            part.kernels.step(clip, has_squares, _stream(part.device))
        plan.written = addresses

    def _drop(self, plan) -> None:
        if plan is not None and plan.is_captured:
            self._captured.append(plan)

    def _is_as_captured(self, plan, addresses, is_capturing) -> bool:
        """Whether a plan that a CUDA graph knows may serve gradients at these addresses, too."""
        if is_capturing:
            plan.is_captured, plan.alignment = True, [a % 16 for a in addresses]
        return not plan.is_captured or plan.alignment == [a % 16 for a in addresses]

    def _plan_all(self, optimizer, members):
        """Plans the parameters that have gradients and elements, and begins their states; the plan and what its find() gives."""
        active = [(name, p, local(p)) for name, p, _ in members if p.grad is not None]
        optimizer._begin_or_check([(name, weight, optimizer.state[p]) for name, p, weight in active])
        indices = [i for i, (_, p, _) in enumerate(members) if p.grad is not None and local(p).numel() > 0]
        params = [members[i][1] for i in indices]
        weights = [local(p) for p in params]
        gradients = [gradient_of(members[i][0], local(p.grad), w) for i, p, w in zip(indices, params, weights)]
        plan = self._make(optimizer, members, indices, (weights, gradients, [optimizer.state[p] for p in params]))
        plan.watch(members, optimizer)
        return plan, (params, gradients, addresses_of(gradients))

    def _make(self, optimizer, members, indices, tensors) -> DevicePlan:
        """tensors: weights, gradients and states of the members with these indices."""
        weights, gradients, states = tensors
        plan = DevicePlan(members, indices, weights, gradients)
        for device in dict.fromkeys(weight.device for weight in weights):
            if device.type != _KIND:
                raise Error("[optimizer] expected parameters on the CPU or on CUDA devices, got both", "device")
            here = [i for i, weight in enumerate(weights) if weight.device == device]
            if device not in self.controls:
                self.controls[device] = Control(device, self._attempt(optimizer))
            part = Part(device, _cuda.DeviceKernels(self._options(device)), self.controls[device])
            _count_on(device, [states[i] for i in here])
            part.kernels.one_by_one(not self.is_joint)
            part.place([self._row(members[indices[i]], weights[i], gradients[i], states[i]) for i in here], _stream(device))
            plan.parts.append((part, here))
        return plan

    def _attempt(self, optimizer) -> int:
        counted = self.read()
        return counted["attempt"] if counted else optimizer._host.attempt

    def _options(self, device):
        f = self._kernels.formats()
        return _cuda.Options(device.index or 0, self._group, f.m_dtype, f.m_expand, f.m_stochastic, f.v_dtype, f.v_expand,
                             f.v_stochastic, f.exact, 0, self._seed & 0xFFFFFFFF)

    def _row(self, member, weight, gradient, state) -> dict:
        f, kind = self._kernels.formats(), DTYPES[weight.dtype]
        return {"weight": weight.data_ptr(), "master": address(state.get("master")), "m": state["exp_avg"].data_ptr(),
                "v": state["exp_avg_sq"].data_ptr(), "m_meta": address(state.get("exp_avg_meta")),
                "v_meta": address(state.get("exp_avg_sq_meta")), "t": state["step"].data_ptr(), "n": weight.numel(),
                "name": _c.name_hash(member[0]), "dtype": f.wide[kind], "gradient_dtype": f.wide[DTYPES[gradient.dtype]],
                "store": f.store[kind], "numbers": member[2]}


def _expect_no_capture(is_capturing: bool) -> None:
    if is_capturing:
        raise Error("[optimizer] expected one step with these gradients before a CUDA graph captures one")


def _stream(device) -> int:
    return torch.cuda.current_stream(device).cuda_stream


def _count_on(device, states) -> None:
    """Puts the counters of updates on the device, side by side."""
    outside = [state for state in states if not torch.is_tensor(state["step"]) or state["step"].device != device
               or state["step"].dtype != torch.int64]
    if outside:
        counts = torch.tensor([int(state["step"]) for state in outside], dtype=torch.int64).to(device)
        for state, count in zip(outside, counts.unbind(0)):
            state["step"] = count


def _join_squares(plan) -> None:
    """The sums of squares of several devices and ranks become one, the same everywhere."""
    totals = [part.control.squares for part, _ in plan.parts]
    if len(totals) > 1:
        total = sum((other.to(totals[0].device, non_blocking=True) for other in totals[1:]), totals[0])
        for own in totals:
            own.copy_(total, non_blocking=True)
    if plan.sharded and not totals:  # the other ranks wait for this one all the same
        totals = [torch.zeros((), dtype=torch.float64, device=plan.sharded[0][0].device_type)]
    for own in totals:
        add_ranks(own, plan.sharded)
