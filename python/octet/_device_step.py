"""A step of the optimizer on CUDA devices: everything is queued on PyTorch's current streams, nothing waits.

What tensors lie where is planned once and written to the device; a step then checks that it still holds, hands over the
addresses of gradients where they are others, and launches. Counters, norm and the decision to skip stay on the device.
"""

from __future__ import annotations

import operator
import struct
import weakref
from array import array

import torch

from . import _cuda_optimizer as _cuda
from . import _optimizer as _c
from ._error import Error
from ._ranks import add_ranks, sharded_over
from ._tensors import DTYPES, address, gradient_of, local

_ADDRESS, _SIZE = torch.Tensor.data_ptr, torch.Tensor.numel
_RENEWED_OFTEN = 3  # gradients that are others this often are others in every step
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

    def write_gradients(self, addresses: list, stream: int) -> None:
        packed = array("Q", addresses)
        self.kernels.write_gradients(packed.buffer_info()[0], len(packed), stream)


def _plain(number):
    return float(number) if torch.is_tensor(number) else number


class Plan:
    """What a step works on: weights with gradients, by device, as they lay when it was made."""

    def __init__(self, members, weights, states, dtypes):
        self.members, self.states, self.dtypes = members, states, dtypes  # (name, p, group number); of gradients
        self.params = [p for _, p, _ in members]
        self.is_simple = all(type(p.data) is torch.Tensor and w.is_contiguous() for p, w in zip(self.params, weights))
        self.addresses = list(map(_ADDRESS, weights))
        self.sizes = list(map(_SIZE, weights))
        self.parts: list = []   # (part, indices of its parameters)
        self.sharded: list = []  # dimensions of meshes over which the norm is summed
        self.written: list = []  # addresses of gradients that the devices know
        self.is_captured, self.alignment = False, []
        self._idle: list = []   # parameters without a gradient
        self._seen: list = []   # gradients that lay as they must, by weak references
        self._renewed = 0       # times that others took their places

    def watch(self, members) -> None:
        """All members: those that the plan leaves out get no gradient, or it holds no more."""
        known = set(map(id, self.params))
        self._idle = [p for _, p, _ in members if id(p) not in known and local(p).numel() > 0]

    def states_are(self, states) -> bool:
        """Whether the states are still those of the plan."""
        return not self.params or (states.get(self.params[0]) is self.states[0]
                                   and states.get(self.params[-1]) is self.states[-1])

    def gradients(self):
        """The gradients as they lie beside the weights and their addresses, or None where they do not fit the plan."""
        if any(p.grad is not None for p in self._idle):
            return None
        gradients = [p.grad for p in self.params]
        found = self._simple(gradients) if self.is_simple else None
        if found is None and all(gradient is not None for gradient in gradients):
            found = self.given([local(p) for p in self.params], list(map(local, gradients)))
        return found

    def _simple(self, gradients):
        """As gradients(), by a few calls for all tensors, where they lie one after another as their weights do."""
        try:
            if list(map(_ADDRESS, self.params)) != self.addresses or [g.dtype for g in gradients] != self.dtypes:
                return None
            addresses = list(map(_ADDRESS, gradients))
            if addresses == self.written:
                addresses = self.written
            return (gradients, addresses) if self._lie_well(gradients, addresses) else None
        except (AttributeError, RuntimeError, TypeError):  # None, or of a kind without memory
            return None

    def _lie_well(self, gradients, addresses) -> bool:
        """Whether all are contiguous and of their sizes. The same objects with the same memory still are."""
        if self._seen and addresses is self.written and all(map(operator.is_, [seen() for seen in self._seen], gradients)):
            return True
        if not all(map(torch.Tensor.is_contiguous, gradients)) or list(map(_SIZE, gradients)) != self.sizes:
            return False
        if self._renewed < _RENEWED_OFTEN:  # with new gradients in every step references are of no use
            self._renewed += 1
            self._seen = list(map(weakref.ref, gradients))
        else:
            self._seen = []
        return True

    def given(self, weights, gradients):
        """As gradients(), for tensors that a caller has."""
        if list(map(_ADDRESS, weights)) != self.addresses or list(map(_SIZE, weights)) != self.sizes:
            return None
        gradients = [gradient_of(name, g, w) for (name, _, _), g, w in zip(self.members, gradients, weights)]
        return (gradients, list(map(_ADDRESS, gradients))) if [g.dtype for g in gradients] == self.dtypes else None


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

    def run(self, optimizer, members) -> list:
        """One update of every parameter that has a gradient; returns those. members: (name, p, group number) of all."""
        is_capturing = torch.cuda.is_current_stream_capturing()
        plan, found = self._plan, None
        if plan is not None and plan.states_are(optimizer.state):
            found = plan.gradients()
        if found is None or not self._is_as_captured(plan, found[1], is_capturing):
            _expect_no_capture(is_capturing)
            self._plan = self._drop(plan)
            plan = self._plan = self._plan_all(optimizer, members)
            found = plan.given([local(p) for p in plan.params], [local(p.grad) for p in plan.params])
        rates = [group["lr"] for group in optimizer.param_groups]
        self._launch(optimizer, plan, found[1], rates, is_capturing)
        return plan.params

    def run_given(self, optimizer, members, weights, gradients, states, rates) -> None:
        """One update of these tensors, as a compiled step has them. rates: learning rates by group."""
        full = [i for i, weight in enumerate(weights) if weight.numel() > 0]
        members, weights, gradients, states = ([rows[i] for i in full] for rows in (members, weights, gradients, states))
        is_capturing = torch.cuda.is_current_stream_capturing()
        plan, found = self._given_plan, None
        if plan is not None and [id(p) for _, p, _ in members] == [*map(id, plan.params)] and _lie_same(states, plan.states):
            found = plan.given(weights, gradients)
        if found is None or not self._is_as_captured(plan, found[1], is_capturing):
            _expect_no_capture(is_capturing)
            self._given_plan = self._drop(plan)
            gradients = [gradient_of(name, g, w) for (name, _, _), g, w in zip(members, gradients, weights)]
            plan = self._given_plan = self._make(optimizer, members, weights, gradients, states)
            found = gradients, list(map(_ADDRESS, gradients))
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
        is_new = addresses is not plan.written
        if is_new and 0 in addresses:
            name = plan.members[addresses.index(0)][0]
            raise Error(f"[optimizer] {name}: expected a gradient with memory, got one whose storage is freed")
        clip, has_squares = float(optimizer.clip), optimizer.clip > 0 or optimizer.skip_nonfinite
        for part, indices in plan.parts:
            stream = _stream(part.device)
            if not is_capturing:
                part.write_numbers(optimizer.param_groups, rates, stream)
            if is_new or plan.is_captured:  # a graph writes its own
                part.write_gradients(addresses if len(plan.parts) == 1 else [addresses[i] for i in indices], stream)
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

    def _plan_all(self, optimizer, members) -> Plan:
        """Plans the parameters that have gradients and elements, and begins their states."""
        active = [member for member in members if member[1].grad is not None]
        optimizer._begin_or_check([(name, local(p), optimizer.state[p]) for name, p, _ in active])
        active = [member for member in active if local(member[1]).numel() > 0]
        weights = [local(p) for _, p, _ in active]
        gradients = [gradient_of(name, local(p.grad), w) for (name, p, _), w in zip(active, weights)]
        plan = self._make(optimizer, active, weights, gradients, [optimizer.state[p] for _, p, _ in active])
        plan.watch(members)
        if optimizer.clip > 0 or optimizer.skip_nonfinite:
            plan.sharded = sharded_over([p for _, p, _ in members if p.grad is not None])
        return plan

    def _make(self, optimizer, members, weights, gradients, states) -> Plan:
        plan = Plan(members, weights, states, [gradient.dtype for gradient in gradients])
        devices = list(dict.fromkeys(weight.device for weight in weights))
        for device in devices:
            if device.type != _KIND:
                raise Error("[optimizer] expected parameters on the CPU or on CUDA devices, got both", "device")
            indices = [i for i, weight in enumerate(weights) if weight.device == device]
            if device not in self.controls:
                self.controls[device] = Control(device, self._attempt(optimizer))
            part = Part(device, _cuda.DeviceKernels(self._options(device)), self.controls[device])
            _count_on(device, [plan.states[i] for i in indices])
            part.kernels.one_by_one(not self.is_joint)
            part.place([self._row(plan, i, weights[i]) for i in indices], _stream(device))
            plan.parts.append((part, indices))
        return plan

    def _attempt(self, optimizer) -> int:
        counted = self.read()
        return counted["attempt"] if counted else optimizer._host.attempt

    def _options(self, device):
        f = self._kernels.formats()
        return _cuda.Options(device.index or 0, self._group, f.m_dtype, f.m_expand, f.m_stochastic, f.v_dtype, f.v_expand,
                             f.v_stochastic, f.exact, 0, self._seed & 0xFFFFFFFF)

    def _row(self, plan, index: int, weight) -> dict:
        f, state, (name, _, group) = self._kernels.formats(), plan.states[index], plan.members[index]
        kind = DTYPES[weight.dtype]
        return {"weight": weight.data_ptr(), "master": address(state.get("master")), "m": state["exp_avg"].data_ptr(),
                "v": state["exp_avg_sq"].data_ptr(), "m_meta": address(state.get("exp_avg_meta")),
                "v_meta": address(state.get("exp_avg_sq_meta")), "t": state["step"].data_ptr(), "n": weight.numel(),
                "name": _c.name_hash(name), "dtype": f.wide[kind], "gradient_dtype": f.wide[DTYPES[plan.dtypes[index]]],
                "store": f.store[kind], "numbers": group}


def _expect_no_capture(is_capturing: bool) -> None:
    if is_capturing:
        raise Error("[optimizer] expected one step with these gradients before a CUDA graph captures one")


def _lie_same(states, others) -> bool:
    """Whether two lists of states are the same memory."""
    return all([*map(_ADDRESS, a.values())] == [*map(_ADDRESS, b.values())] for a, b in zip(states, others))


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
