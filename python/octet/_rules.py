"""SGD and Muon with a momentum in any state format, by the rules of Octet's trainer (docs/optimizers.md), in f32."""

from __future__ import annotations

import math
import numbers

import torch

from . import formats
from ._checks import MAX_F32
from ._error import Error
from ._loading import check_form, check_places
from ._numbers import Watched, check_integer, check_keys, check_numbers
from ._tensors import DTYPES, check_gradient, expect_own_master, take_master

_WIDE = {"f32": torch.float32, "bf16": torch.bfloat16}
_CODES = {"e4m3": "e4m3", "e5m2": "e5m2", "hif8": "hif8", "de8": "de8s"}
_OF_ALL = ("state", "master")
_GROUP = 128  # elements of a group of 8-bit codes
_BUFFER = "momentum_buffer"  # torch's name; beside codes "momentum_buffer_scale", or with expansion "momentum_buffer_meta"


class _Momentum(torch.optim.Optimizer):
    """What both have: the momentum, masters, and whatever torch.optim.Optimizer has."""

    def __init__(self, params, state, master, defaults):
        if not _is_format(state):
            raise Error(f"[optimizer] state: expected one of {', '.join([*_WIDE, *_CODES])}, 8-bit ones with or without +x, got {state}")
        if master not in ("bf16_remainder", "fp32"):
            raise Error(f"[optimizer] master: expected bf16_remainder or fp32, got {master}")
        self._format, self._master = state, master
        self._watched = Watched(self._check_group, _OF_ALL)
        super().__init__(params, {**defaults, "format": state})

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        try:
            self._check_group(self.param_groups[-1])
            for p in self.param_groups[-1]["params"]:
                self._check_parameter(p)
        except Error:
            self.param_groups.pop()
            raise

    def __getstate__(self):
        raise Error("[optimizer] expected state_dict() to be stored, got the optimizer itself")

    def _check_group(self, group):
        check_keys(group, _OF_ALL, self.defaults)
        check_numbers(group)
        for key in ("momentum", "dampening"):
            value = group.get(key, 0.0)
            is_number = isinstance(value, numbers.Real) and not isinstance(value, bool) and -MAX_F32 <= value <= MAX_F32
            if not is_number or (key == "momentum" and not 0 <= value < 1):
                raise Error(f"[optimizer] {key}: expected a number{' in [0, 1)' if key == 'momentum' else ''}, got {value!r}")
        for key in ("nesterov", "maximize"):
            if not isinstance(group.get(key, False), bool):
                raise Error(f"[optimizer] {key}: expected True or False, got {group[key]!r}")

    def _check_parameter(self, p):
        if p.dtype not in DTYPES:
            raise Error(f"[optimizer] expected parameters in f32, bf16 or fp16, got {p.dtype}")
        if hasattr(p, "to_local") and (self._format not in _WIDE or self._master_dtype(p) == torch.int16):
            raise Error("[optimizer] expected whole parameters beside an 8-bit momentum or remainders, got a shard: octet.optim.AdamW "
                        "takes shards, and this optimizer with state f32 or bf16 and master fp32")

    def _master_dtype(self, p):
        """None: the parameter is its own."""
        if p.dtype == torch.float32:
            return None
        return torch.int16 if p.dtype == torch.bfloat16 and self._master == "bf16_remainder" else torch.float32

    def _check_state(self, p, state):
        """Whether what stands there is a state of the parameter as it is now."""
        own = f"{p.dtype} {list(p.shape)} on {p.device}"
        fields = _fields(self._format, p) if _BUFFER in state else {}
        if "master" in state:
            fields["master"] = (self._master_dtype(p), tuple(p.shape))
        for key, (dtype, shape) in fields.items():
            given = state.get(key)
            if not torch.is_tensor(given) or (given.dtype, tuple(given.shape), given.device) != (dtype, shape, p.device):
                shown = f"{given.dtype} {list(given.shape)} on {given.device}" if torch.is_tensor(given) else type(given).__name__
                raise Error(f"[optimizer] expected the state {key} of a parameter {own}, "
                            + (f"{dtype} {list(shape)}" if dtype else "none") + f", got {shown}: make the optimizer when the model has "
                            "its type and place, or load_state_dict() what state_dict() gave")

    @torch.no_grad()
    def step(self, closure=None):
        """One update of every parameter that has a gradient. Returns what `closure`, which makes them, returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._watched.look(self.param_groups)
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):  # before any of them changes
            self._check_parameter(p)
            check_gradient("gradient", p.grad, p)
            self._check_state(p, self.state.get(p, {}))
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    self._write_weight(p, state, self._next(group, state, self._weight(p, state), p.grad.float()))
            self._end(group)
        return loss

    def _end(self, group):
        """Behind a group's updates."""

    def load_state_dict(self, state_dict):
        """Takes what state_dict() gave, of any state and master, and the state of torch's optimizer of that name. Load the model's
        weights first. Raises octet.Error where a state does not fit; nothing is loaded then."""
        states = self._read(state_dict)
        super().load_state_dict({**state_dict, "state": {}})
        self.state.update(states)
        for group in self.param_groups:
            group["format"] = self._format
            self._loaded(group)

    def _loaded(self, group):
        """Behind the loading of a group."""

    @torch.no_grad()
    def _read(self, state_dict) -> dict:
        """The states by parameter, in this optimizer's form."""
        check_form(state_dict)
        saved, groups = state_dict["param_groups"], self.param_groups
        counts = [[len(group["params"]) for group in given] for given in (saved, groups)]
        if counts[0] != counts[1]:
            raise Error(f"[optimizer] expected groups of {counts[1]} parameters, got {counts[0]}", "bad_data")
        check_places(saved, groups, state_dict["state"])
        states = {}
        for given, group in zip(saved, groups):
            self._check_group({**self.defaults, **given})
            for index, p in zip(given["params"], group["params"]):
                kept = {key: value for key, value in (state_dict["state"].get(index) or {}).items() if value is not None}
                if kept:
                    states[p] = self._state_of(p, kept, given)
        return states

    def _state_of(self, p, kept, group) -> dict:
        form = group.get("format")
        if form is not None and not _is_format(form):
            raise Error(f"[optimizer] expected the state of {type(self).__name__}, got one whose format is {form!r}", "bad_data")
        fields = _fields(form or "f32", p) if _BUFFER in kept else {}
        wanted = fields.keys()
        if not wanted <= kept.keys() <= wanted | {"master"}:
            strange = sorted(kept.keys() ^ (wanted | {"master"} & kept.keys()))[0]
            raise Error(f"[optimizer] expected the state of {type(self).__name__}, got one {'with' if strange in kept else 'without'} "
                        f"{strange}", "bad_data")
        for key, (dtype, shape) in fields.items():
            given = kept[key]
            is_right = torch.is_tensor(given) and (given.dtype == dtype or (form is None and given.is_floating_point()))
            if not is_right:
                raise Error(f"[optimizer] {key}: expected {dtype}, got {given.dtype if torch.is_tensor(given) else type(given).__name__}",
                            "bad_data")
            if tuple(given.shape) != shape:
                raise Error(f"[optimizer] {key}: expected shape {list(shape)}, got {list(given.shape)}", "bad_data")
        state = {key: value.detach().to(p.device).clone() for key, value in kept.items() if key != "master"}
        if form != self._format and _BUFFER in state:
            momentum = _load(form or "f32", state)
            state = {}
            _store(self._format, state, momentum if form else momentum.mul_(self._share_of_torch(group)))
        if "master" in kept and p.dtype == torch.float32:
            expect_own_master("master", p.detach(), kept["master"])
        elif "master" in kept:
            state["master"] = torch.empty_like(p, dtype=self._master_dtype(p))
            take_master(p, state["master"], kept["master"])
        return state

    def _share_of_torch(self, group) -> float:
        """Our momentum over that of torch's optimizer."""
        return 1.0

    def _weight(self, p, state):
        """In f32: the master, where there is one."""
        dtype = self._master_dtype(p)
        if dtype is None:
            return p
        if dtype == torch.int16:
            rest = state.setdefault("master", torch.zeros_like(p, dtype=torch.int16))
            return ((p.view(torch.int16).int() << 16) + rest.int()).view(torch.float32)
        if "master" not in state:
            state["master"] = p.detach().float().clone()
        return state["master"]

    def _write_weight(self, p, state, w):
        if self._master_dtype(p) == torch.int16:
            bits = w.view(torch.int32)
            # A NaN keeps its upper half: 2^15 more could make it -0.
            upper = torch.where(w.isnan(), bits, bits + 0x8000) >> 16
            state["master"].copy_(bits - (upper << 16))
            p.view(torch.int16).copy_(upper)
            return
        if "master" in state:
            state["master"].copy_(w)
        p.copy_(w)

    def _next_momentum(self, kept, state, gradient, share):
        """The new momentum in f32, stored: kept m + share g, or g where there is none yet."""
        if _BUFFER not in state:
            momentum = gradient.clone()
        else:
            momentum = _load(self._format, state).mul_(kept).add_(gradient, alpha=share)
        _store(self._format, state, momentum)
        return momentum


class SGD(_Momentum):
    """torch.optim.SGD whose momentum takes one byte an element, or two or four.

    params, lr, momentum, dampening, weight_decay, nesterov, maximize: as torch.optim.SGD.
    state: how the momentum is stored: f32, bf16, e4m3, e5m2, hif8, de8, each 8-bit one with "+x" for range expansion.
    master: what BF16 weights have beside them: bf16_remainder, 16 bits that make an f32 of them, or fp32. FP16 weights
        always have an f32 master, F32 weights none.
    foreach, fused: taken for torch.optim.SGD's sake. differentiable: False alone.
    Raises octet.Error.
    """

    def __init__(self, params, lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, *, maximize=False,
                 foreach=None, differentiable=False, fused=None, state="e4m3+x", master="bf16_remainder"):
        if differentiable:
            raise Error("[optimizer] differentiable: expected False, got True: this optimizer has no such update")
        super().__init__(params, state, master, {"lr": lr, "momentum": momentum, "dampening": dampening,
                                                 "weight_decay": weight_decay, "nesterov": nesterov, "maximize": maximize})

    def _check_group(self, group):
        super()._check_group(group)
        if group["nesterov"] and (group["momentum"] == 0 or group["dampening"] != 0):
            raise Error("[optimizer] nesterov: expected a momentum and no dampening with it")

    def _next(self, group, state, w, gradient):
        g = -gradient if group["maximize"] else gradient
        if group["weight_decay"] != 0:
            g = g.add(w, alpha=group["weight_decay"])
        along = g
        if group["momentum"] != 0:
            momentum = self._next_momentum(group["momentum"], state, g, 1 - group["dampening"])
            along = g.add(momentum, alpha=group["momentum"]) if group["nesterov"] else momentum
        return w.sub(along, alpha=float(group["lr"]))


class Muon(_Momentum):
    """torch.optim.Muon, of matrices alone, whose momentum takes one byte an element, or two or four.

    params, lr, weight_decay, momentum, nesterov, ns_coefficients, eps, ns_steps: as torch.optim.Muon, whose momentum is
        1 - momentum times ours: the step is the same, also where a schedule changes `momentum`.
    adjust_lr_fn: original (None too), the factor sqrt(max(1, rows / cols)), or match_rms_adamw, 0.2 sqrt(max(rows, cols)).
    state, master: as octet.optim.SGD's. Raises octet.Error.
    """

    def __init__(self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, ns_coefficients=(3.4445, -4.775, 2.0315),
                 eps=1e-7, ns_steps=5, adjust_lr_fn=None, *, state="e4m3+x", master="bf16_remainder"):
        super().__init__(params, state, master, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
                                                 "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps,
                                                 "adjust_lr_fn": adjust_lr_fn, "buffer_momentum": None})

    def _check_group(self, group):
        super()._check_group(group)
        check_integer("ns_steps", group["ns_steps"], 1, 99)
        coefficients, known = group["ns_coefficients"], (None, "original", "match_rms_adamw")
        are_three = isinstance(coefficients, (list, tuple)) and len(coefficients) == 3
        if not are_three or not all(isinstance(x, numbers.Real) and -MAX_F32 <= x <= MAX_F32 for x in coefficients):
            raise Error(f"[optimizer] ns_coefficients: expected three numbers, got {coefficients!r}")
        if group["adjust_lr_fn"] not in known:
            raise Error(f"[optimizer] adjust_lr_fn: expected original or match_rms_adamw, got {group['adjust_lr_fn']}")

    def _check_parameter(self, p):
        super()._check_parameter(p)
        if p.ndim != 2:
            raise Error(f"[optimizer] expected matrices alone, got a parameter of shape {list(p.shape)}")

    def _share_of_torch(self, group) -> float:
        return 1 / (1 - group["momentum"])

    def _ratio(self, group) -> float:
        """What the stored momentum is multiplied by since the group's `momentum` has changed: torch's stays, and with it 1 - momentum
        times ours."""
        before, now = group.get("buffer_momentum"), group["momentum"]
        return 1.0 if before is None else (1 - before) / (1 - now)

    def _end(self, group):
        ratio = self._ratio(group)
        for p in group["params"] if ratio != 1 else ():
            if p.grad is None and _BUFFER in self.state.get(p, {}):
                _store(self._format, self.state[p], _load(self._format, self.state[p]).mul_(ratio))
        group["buffer_momentum"] = group["momentum"]

    def _loaded(self, group):
        if group.get("buffer_momentum") is None:
            group["buffer_momentum"] = group["momentum"]

    def _next(self, group, state, w, gradient):
        momentum = self._next_momentum(group["momentum"] * self._ratio(group), state, gradient, 1)
        u = gradient.add(momentum, alpha=group["momentum"]) if group["nesterov"] else momentum
        rows, cols = w.shape
        factor = 0.2 * math.sqrt(max(rows, cols)) if group["adjust_lr_fn"] == "match_rms_adamw" else math.sqrt(max(1, rows / max(1, cols)))
        lr = float(group["lr"])
        eps = float(group["eps"]) / (1 - group["momentum"])  # of torch's u
        step = _orthogonal(u, group["ns_coefficients"], eps, group["ns_steps"]).float()
        return w.mul(1 - lr * group["weight_decay"]).sub_(step, alpha=lr * factor)


def _orthogonal(u, coefficients, eps, steps):
    """u with its singular values brought near 1, in BF16 (Jordan et al. 2024)."""
    a, b, c = coefficients
    is_tall = u.shape[0] > u.shape[1]
    x = (u.T if is_tall else u).bfloat16()
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x


def _is_format(form) -> bool:
    return isinstance(form, str) and form.removesuffix("+x") in (_CODES if form.endswith("+x") else {**_WIDE, **_CODES})


def _fields(form, p) -> dict:
    """Type and shape, by key, of what stores a momentum of p."""
    shape, n_groups = tuple(p.shape), -(-p.numel() // _GROUP)
    if form in _WIDE:
        return {_BUFFER: (_WIDE[form], shape)}
    words = {_BUFFER + "_meta": (torch.int32, (n_groups,))} if form.endswith("+x") else {_BUFFER + "_scale": (torch.float32, (1, n_groups))}
    return {_BUFFER: (torch.uint8, shape), **words}


def _store(form, state, values):
    """Over what is stored, where something is: it stays where it lies."""
    if form in _WIDE:
        _put(state, _BUFFER, values.to(_WIDE[form]))
        return
    expand = form.endswith("+x")
    q = formats.quantize(values.reshape(-1), _CODES[form.removesuffix("+x")], f"1x{_GROUP}", expand=expand)
    _put(state, _BUFFER, q.codes.view(values.shape))
    _put(state, _BUFFER + ("_meta" if expand else "_scale"), q.meta.view(torch.int32) if expand else q.scale)


def _put(state, key, value):
    if key in state:
        state[key].copy_(value)
    else:
        state[key] = value


def _load(form, state):
    stored = state[_BUFFER]
    if form in _WIDE:
        return stored.to(torch.float32, copy=True)
    meta = state.get(_BUFFER + "_meta")
    values = formats.dequantize(stored.reshape(-1), state.get(_BUFFER + "_scale"),
                                meta=None if meta is None else meta.view(torch.uint32), format=_CODES[form.removesuffix("+x")],
                                granularity=f"1x{_GROUP}")
    return values.view(stored.shape)
