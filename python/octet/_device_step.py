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
        self.addresses = b""

    def place(self, rows, stream: int) -> None:
        """rows: dicts of the fields of a Weight."""
        weights = (_cuda.Weight * max(1, len(rows)))()
        for weight, row in zip(weights, rows):
            for field, value in row.items():
                setattr(weight, field, value)
        n_bytes = self.kernels.plan(weights, len(rows))
        self.table = torch.empty(max(256, n_bytes), dtype=torch.uint8, device=self.device)
        self.kernels.place(self.table.data_ptr(), self.control.memory.data_ptr(), stream)

    def write_numbers(self, groups, stream: int) -> None:
        """Learning rates and the like, where they are others than before."""
        numbers = [(*group["betas"], group["eps"], group["weight_decay"], *self._rate(group["lr"], i, len(groups)))
                   for i, group in enumerate(groups)]
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

    def write_gradients(self, addresses: array, stream: int, is_captured: bool) -> None:
        if is_captured or addresses.tobytes() != self.addresses:
            start, count = addresses.buffer_info()
            self.kernels.write_gradients(start, count, stream)
            self.addresses = addresses.tobytes()


def _plain(number):
    return float(number) if torch.is_tensor(number) else number


class Plan:
    """What a step works on: parameters with gradients, by device, as they lay when it was made."""

    def __init__(self, members, states):
        self.members, self.states = members, states  # (name, p, group number); their states
        self.params = [p for _, p, _ in members]
        weights = [local(p) for p in self.params]
        self.is_simple = all(type(p.data) is torch.Tensor and w.is_contiguous() for p, w in zip(self.params, weights))
        self.addresses = array("Q", [w.data_ptr() for w in weights]).tobytes()
        self.sizes = [w.numel() for w in weights]
        self.dtypes: list = []  # of gradients
        self.idle: list = []    # parameters without a gradient
        self.parts: list = []   # (part, indices of its parameters)
        self.sharded = None     # dimensions of meshes over which the norm is summed
        self.is_captured, self.alignment = False, []

    def states_are(self, states) -> bool:
        """Whether the states are still those of the plan."""
        return not self.params or (states.get(self.params[0]) is self.states[0]
                                   and states.get(self.params[-1]) is self.states[-1])

    def gradients(self):
        """The gradients as they lie beside the weights, or None where they do not fit the plan."""
        if any(p.grad is not None for p in self.idle):
            return None
        gradients = [p.grad for p in self.params]
        if not self.is_simple:
            if any(gradient is None for gradient in gradients):
                return None
            weights = [local(p) for p in self.params]
            if array("Q", [w.data_ptr() for w in weights]).tobytes() != self.addresses:
                return None
            gradients = [gradient_of(name, p, w) for (name, p, _), w in zip(self.members, weights)]
            return gradients if [g.dtype for g in gradients] == self.dtypes else None
        try:
            fits = array("Q", map(torch.Tensor.data_ptr, self.params)).tobytes() == self.addresses \
                and [g.dtype for g in gradients] == self.dtypes and all(map(torch.Tensor.is_contiguous, gradients)) \
                and list(map(torch.Tensor.numel, gradients)) == self.sizes
        except (AttributeError, RuntimeError, TypeError):  # None, or of a kind without memory
            return None
        return gradients if fits else None


class DeviceStep:
    """The steps of one optimizer, whose parameters all lie on CUDA devices."""

    def __init__(self, kernels, group: int, seed: int):
        self._kernels, self._group, self._seed = kernels, group, seed
        self.is_joint = True  # False: every tensor has launches of its own, for comparisons
        self.controls: dict = {}  # by device
        self._plan = None
        self._captured: list = []  # plans that a CUDA graph knows

    def forget(self, attempt: int | None = None) -> None:
        """States or parameters are others. attempt: steps that were attempted; None: as they are counted."""
        self._drop()
        if attempt is not None:
            self.controls = {}

    def read(self) -> dict | None:
        """The control of the first device, or None before the first step. Waits for the device."""
        return next(iter(self.controls.values())).read() if self.controls else None

    def run(self, optimizer, members) -> None:
        """One update of every parameter that has a gradient. members: (name, p, group number) of all."""
        is_capturing = torch.cuda.is_current_stream_capturing()
        plan, gradients = self._plan, None
        if plan is not None and plan.states_are(optimizer.state):
            gradients = plan.gradients()
        if gradients is None:
            if is_capturing:
                raise Error("[optimizer] expected one step with these gradients before a CUDA graph captures one")
            plan = self._make(optimizer, members)
            gradients = [gradient_of(name, p, local(p)) for name, p, _ in plan.members]
        addresses = array("Q", map(torch.Tensor.data_ptr, gradients))
        if plan.is_captured and not is_capturing and plan.alignment != [a % 16 for a in addresses]:
            self._drop()
            return self.run(optimizer, members)
        if is_capturing:
            plan.is_captured, plan.alignment = True, [a % 16 for a in addresses]
        if 0 in addresses:
            name = plan.members[addresses.index(0)][0]
            raise Error(f"[optimizer] {name}: expected a gradient with memory, got one whose storage is freed")
        self._launch(optimizer, plan, addresses, is_capturing)

    def write_rates(self, groups) -> None:
        """Learning rates as they are now, for graphs that are replayed."""
        for part, _ in self._plan.parts if self._plan else ():
            part.write_numbers(groups, _stream(part.device))

    def _launch(self, optimizer, plan, addresses, is_capturing) -> None:
        clip, has_squares = float(optimizer.clip), optimizer.clip > 0 or optimizer.skip_nonfinite
        for part, indices in plan.parts:
            stream = _stream(part.device)
            if not is_capturing:
                part.write_numbers(optimizer.param_groups, stream)
            own = addresses if len(plan.parts) == 1 else array("Q", [addresses[i] for i in indices])
            part.write_gradients(own, stream, plan.is_captured)
            if has_squares:
                part.kernels.squares(stream)
        if has_squares:
            _join_squares(plan)
        for part, _ in plan.parts:
            part.kernels.step(clip, has_squares, _stream(part.device))

    def _drop(self) -> None:
        if self._plan is not None and self._plan.is_captured:
            self._captured.append(self._plan)
        self._plan = None

    def _make(self, optimizer, members) -> Plan:
        """Plans the parameters that have gradients and elements, and begins their states."""
        self._drop()
        active = [member for member in members if member[1].grad is not None]
        for _, p, _ in active:
            if not optimizer.state[p]:
                optimizer._begin(local(p), optimizer.state[p])
        active = [member for member in active if local(member[1]).numel() > 0]
        plan = Plan(active, [optimizer.state[p] for _, p, _ in active])
        known = {id(p) for _, p, _ in active}
        plan.idle = [p for _, p, _ in members if id(p) not in known and local(p).numel() > 0]
        weights = [local(p) for p in plan.params]
        gradients = [gradient_of(name, p, w) for (name, p, _), w in zip(active, weights)]
        plan.dtypes = [gradient.dtype for gradient in gradients]
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
        self._plan = plan
        return plan

    def _attempt(self, optimizer) -> int:
        counted = self.read()
        return counted["attempt"] if counted else optimizer.param_groups[0]["attempt"]

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
    if plan.sharded is None:
        plan.sharded = _sharded_over(plan)
    for mesh, dim in plan.sharded:
        for own in totals:
            torch.distributed.all_reduce(own, group=mesh.get_group(dim))


def _sharded_over(plan):
    """The dimensions of the mesh over which all parameters are sharded; none where no parameter is distributed."""
    kinds = {(p.device_mesh, tuple(p.placements)) if hasattr(p, "device_mesh") else None for p in plan.params}
    if kinds <= {None}:
        return []
    if len(kinds) > 1:
        raise Error("[optimizer] expected parameters that are all sharded alike for a norm inside the step, got others "
                    "(clip=0, skip_nonfinite=False does without)")
    mesh, placements = kinds.pop()
    return [(mesh, dim) for dim, placement in enumerate(placements) if placement.is_shard()]
