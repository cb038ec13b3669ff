"""AdamW with 8-bit states for PyTorch: in place of torch.optim.AdamW, one line.

    optimizer = octet.optim.AdamW(model.named_parameters(), lr=1e-3, weight_decay=0.1)

Equation (Loshchilov & Hutter 2019), in f32, the same operations in the same order as Octet's trainer, so that equal
gradients give equal bits:
    m = b1 m + (1-b1) g    v = b2 v + ((1-b2) g) g    w = w - lr ((m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps) + wd w)
States: Xi et al., COAT, ICLR 2025 (E4M3 in groups of 128 with dynamic range expansion).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from . import _optimizer as _c
from ._checks import shown
from ._error import Error

try:
    import torch
except ImportError:
    raise Error("octet.optim: expected the package torch, it is not installed", "device") from None

from . import _op
from ._device_step import DeviceStep
from ._groups import parameter_groups
from ._host_step import HostStep
from ._loading import check_form, decoded, read_states
from ._members import Members
from ._numbers import Watched, check_integer, check_keys, check_numbers
from ._rules import SGD, Muon
from ._state_memory import begin, fields_of
from ._tensors import check_parameter, increment_version, local, master_of, take_state
from ._traced_step import TracedStep

__all__ = ["AdamW", "Muon", "SGD", "parameter_groups"]

_OURS = ("names", "attempt", "format")  # keys of a group beside torch's
_OF_ALL = ("state", "state_m", "state_v", "master", "math", "clip", "skip_nonfinite", "group", "seed", "threads")


class AdamW(torch.optim.Optimizer):
    """AdamW whose moments take two bytes a parameter, and whose masters none, two or four.

    params: parameters, (name, parameter) pairs as model.named_parameters() gives them, or groups of either, in BF16, FP16
        or F32, all on the CPU or all on CUDA devices. Random bits are keyed by the names, else by "param.N", N counting
        all parameters. Sharded parameters (DTensor) step this rank's part, whose groups start where it starts.
    lr, betas, eps, weight_decay: as torch.optim.AdamW; learning-rate schedulers work. lr may be a tensor.
    state: how both moments are stored, `state_m` and `state_v` one of them: f32, bf16, e4m3, e5m2, hif8, de8, each
        8-bit one with "+x" for range expansion, and "_sr" for stochastic rounding (e4m3_sr+x).
    master: what BF16 weights have beside them. bf16_remainder: 16 bits, together exactly an f32 master; fp32: an f32
        master; bf16_sr: nothing, weights round stochastically. FP16 weights always have an f32 master, F32 weights none.
    math: fast or exact powers of the range expansion.
    clip: largest norm of all gradients together, clipped inside the step; 0: none.
    skip_nonfinite: whether a step whose gradients hold NaN or Inf changes nothing and does not count in t, which `skipped`
        then says. That reads the gradients once more, as a clip does, which skips such steps anyway.
    group: elements of a group of 8-bit codes, 1 to 1024, as they lie in memory.
    seed: of stochastic rounding, 0 to 2^32 - 1.  threads: of the CPU; 0: one per core.
    foreach, fused, capturable: taken for torch.optim.AdamW's sake; any value, all tensors are stepped together in any case.
    amsgrad, maximize, differentiable: False alone, in groups and stored states, too, as decoupled_weight_decay is True alone there.

    A step takes what stands in `param_groups` and `state` when it begins, as torch's optimizers do: parameters may be exchanged,
    added, reordered and removed there, states replaced. A state that cannot be taken is an error that names it.

    On CUDA devices a step is queued on PyTorch's current stream and nothing waits for it; reading `grad_norm`, `skipped` or
    `counts` does. A CUDA graph may hold a step, once one has run with the same parameters; it takes learning rates from
    the device: give lr as a CUDA tensor, or call write_rates() where a scheduler has changed a number.
    Raises octet.Error. One thread at a time: a step during another one is an error.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, state="e4m3+x",
                 state_m=None, state_v=None, master="bf16_remainder", math="fast", clip=0.0, skip_nonfinite=True,
                 group=128, seed=0, threads=0, foreach=None, fused=None, capturable=None, maximize=False,
                 differentiable=False):
        for name, wanted in (("amsgrad", amsgrad), ("maximize", maximize), ("differentiable", differentiable)):
            if wanted:
                raise Error(f"[optimizer] {name}: expected False, got {wanted}: this optimizer has no such update")
        check_numbers({"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "clip": clip})
        check_integer("seed", seed, 0, 2**32 - 1)
        check_integer("threads", threads, 0, 4096)
        if not isinstance(skip_nonfinite, bool):
            raise Error(f"[optimizer] skip_nonfinite: expected True or False, got {skip_nonfinite!r}")
        self._watched = Watched(self._check_group, _OF_ALL)
        self._format = (state if state_m is None else state_m, state if state_v is None else state_v, math, group)
        self._kernels = _c.Kernels(self._format[0], self._format[1], master, math, group, seed, threads)
        self._host, self._device = HostStep(self._kernels), DeviceStep(self._kernels, group, seed)
        self.clip, self.skip_nonfinite = clip, skip_nonfinite
        self._number = _op.register(self)
        self._members, self._trace, self._alone = Members(), TracedStep(), threading.Lock()
        self._receive = None  # states by parameter, while load_state_dict() is at work
        defaults = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay, "attempt": 0,
                    "format": list(self._format)}
        super().__init__(_with_names(params), defaults)

    def add_param_group(self, param_group):
        """As torch's; the group may hold (name, parameter) pairs."""
        known = {name for name, _, _ in self._all_members()}
        (group,) = _with_names([param_group])
        names = group.pop("names", None) or [None] * len(group["params"])
        group["names"] = [name or f"param.{len(known) + i}" for i, name in enumerate(names)]
        for name in group["names"]:
            if name in known:
                raise Error(f"[optimizer] expected every name once, got {name} again")
            known.add(name)
        for name, p in zip(group["names"], group["params"]):
            check_parameter(name, p)
        if len(set(map(id, group["params"]))) < len(group["params"]):
            raise Error("[optimizer] expected every parameter once, got one again in its group")
        check_keys({**self.defaults, **group}, _OF_ALL, self.defaults)
        check_numbers(group)
        self._watched.betas.append(tuple(group.get("betas", self.defaults["betas"])))
        if self.param_groups:
            group.setdefault("attempt", self.param_groups[0]["attempt"])
        super().add_param_group(group)
        self._forget()

    def _check_group(self, group) -> None:
        check_keys(group, _OF_ALL, self.defaults)
        check_numbers(group)

    @torch.no_grad()
    def step(self, closure=None):
        """One update of every parameter that has a gradient. Returns what `closure`, which makes them, returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if _op.IS_THERE and torch.compiler.is_compiling() and _op.prepare(self._number):
            self._traced_update()
        else:
            self._update()
        return loss

    @torch._disable_dynamo
    def _update(self):
        """A compiled step calls it as it stands where there is no operator for its tensors."""
        if not self._alone.acquire(blocking=False):
            raise Error("[optimizer] expected one step at a time, got one during another")
        try:
            params = self._present()
            self._trace.begin_masters(params, self.state)
            increment_version(self._steps().run(self, params))
        finally:
            self._alone.release()

    def _traced_update(self):
        """Queues the operator, with all that it reads and changes among its arguments."""
        which, weights, gradients, states = [], [], [], []
        for index, p, state in self._trace.rows:
            gradient = p.grad
            if gradient is not None:
                which.append(index)
                weights.append(p)
                gradients.append(gradient)
                states.extend(state)
        _op.adamw_step(self._number, which, weights, gradients, states, self._trace.rates)

    def _prepare_trace(self) -> bool:
        """Whether a traced step has an operator: not for sharded tensors. It then has rows."""
        members = self._all_members()
        if any(hasattr(p, "to_local") for _, p, _ in members):
            return False
        self._trace.prepare(self, members)
        return True

    def _run_traced(self, *tensors) -> None:
        self._trace.run(self, self._all_members(), *tensors)

    def _present(self) -> list:
        """The parameters that stand in the groups now."""
        self._watched.look(self.param_groups)
        params = self._members.find(self.param_groups)
        if params is None:
            params = self._members.update(self.param_groups, self.defaults)
            self._forget()
        return params

    def _all_members(self) -> list:
        """(name, parameter, group number) of all that stand in the groups now."""
        params = self._present()
        return list(zip(self._members.names, params, self._members.groups))

    def _steps(self):
        """Who steps: where the parameters lie."""
        first = next((group["params"][0] for group in self.param_groups if group["params"]), None)
        return self._device if first is not None and first.is_cuda else self._host

    def _forget(self, attempt: int | None = None) -> None:
        """Parameters or states are others. attempt: steps that were attempted; None: as they are counted."""
        self._trace.forget()
        self._host.forget(attempt)
        self._device.forget(attempt)

    @property
    def grad_norm(self) -> float:
        """Of the last step, before clipping; NaN where neither clip nor skip_nonfinite asks for it."""
        return self._results()["grad_norm"]

    @property
    def skipped(self) -> bool:
        """Whether the last step changed nothing."""
        return bool(self._results()["skipped"])

    @property
    def counts(self) -> dict[str, int]:
        """How many steps of this object were applied and how many skipped."""
        results = self._results()
        return {"applied": results["applied"], "skipped": results["skips"]}

    def write_rates(self) -> None:
        """Writes the groups' numbers to the device, where a CUDA graph that holds steps reads them."""
        self._device.write_rates(self.param_groups)

    def state_dict(self):
        """As torch's, with all states as they are stored: the tensors themselves, as torch's are. Waits for the device.

        States of parameters that stand in no group any more are not in it. States that began together share a buffer. Each is a
        tensor with a storage of its own all the same: storing or cloning one takes its bytes alone; one that is kept as it is keeps
        the buffer.
        """
        present = set(map(id, self._present()))
        attempt = self._results()["attempt"]
        for group in self.param_groups:
            group["attempt"] = attempt
        self._members.write_names(self.param_groups)
        gone = [p for p in self.state if torch.is_tensor(p) and id(p) not in present]
        aside = {p: self.state.pop(p) for p in gone}
        try:
            return super().state_dict()
        finally:
            self.state.update(aside)

    def _results(self) -> dict:
        return self._device.read() or self._host.read()

    def master_weights(self) -> dict[str, torch.Tensor]:
        """The f32 masters by name, in the shapes of their parameters; the weights themselves where they have none."""
        return {name: master_of(local(p), state.get("master")) for name, p, state in self._with_states()}

    @torch.no_grad()
    def plain_state_dict(self) -> dict:
        """The state as torch.optim.AdamW has it, moments in f32: its load_state_dict() takes it, and so does ours.
        Masters are not in it (master_weights())."""
        result = self.state_dict()
        groups = []
        template = torch.optim.AdamW([torch.zeros(1)]).param_groups[0]
        for group in result["param_groups"]:
            plain = {key: value for key, value in template.items() if key != "params"}
            groups.append({**plain, **{key: value for key, value in group.items() if key not in _OURS}})
        rows = self._with_states()
        states = {index: {"step": torch.tensor(float(state["step"])), "exp_avg": decoded(self._kernels, 0, state),
                          "exp_avg_sq": decoded(self._kernels, 1, state)}
                  for index, (_, _, state) in enumerate(rows) if state}
        return {"state": states, "param_groups": groups}

    def load_state_dict(self, state_dict):
        """Takes what state_dict() gave, of any state format, and what torch.optim.AdamW's gives (f32 or BF16 moments).

        Moments of another format are decoded and encoded anew. Load the model's weights first: remainders belong to
        them. Hooks see, and may replace, the state as with torch's. Raises octet.Error where a tensor does not fit its parameter;
        nothing is loaded then.
        """
        if not isinstance(state_dict, dict):
            check_form(state_dict)
        loaded = {}
        hook = self.register_load_state_dict_pre_hook(lambda _, state: _without_states(state, loaded, self))  # behind the user's
        self._receive = loaded
        try:
            super().load_state_dict(state_dict)
        finally:
            self._receive = None
            hook.remove()

    def __setstate__(self, state):
        """What torch's load_state_dict() calls between its hooks."""
        loaded = self._receive or {}
        super().__setstate__(state)
        self._members.write_names(self.param_groups)
        attempts = max((int(one["step"]) for one in loaded.values()), default=0)
        for group in self.param_groups:
            group["format"] = list(self._format)
            group.setdefault("attempt", attempts)
        self.state.update(loaded)
        self._forget(self.param_groups[0]["attempt"] if self.param_groups else None)

    def __getstate__(self):
        raise Error("[optimizer] expected state_dict() to be stored, got the optimizer itself")

    def _begin_or_check(self, rows) -> None:
        """rows: (name, weight, state). Those without a state yet begin together, in one buffer a device."""
        for name, weight, state in rows:
            check_parameter(name, weight)
            if state:
                take_state(name, weight, state, fields_of(self._kernels, weight))
        begin(self._kernels, [(weight, state) for _, weight, state in rows if not state])

    def _with_states(self) -> list:
        """(name, parameter, state) of all; {} where none has begun."""
        rows = [(name, p, self.state.get(p) or {}) for name, p, _ in self._all_members()]
        self._begin_or_check([(name, local(p), state) for name, p, state in rows if state])
        return rows


@torch.no_grad()
def _without_states(state_dict, loaded, optimizer):
    """Reads the states; torch's own reading would give moments the type of their parameters."""
    optimizer._present()
    loaded.update(read_states(optimizer, state_dict))
    return {"state": {}, "param_groups": state_dict["param_groups"]}


def _ordered(params):
    if isinstance(params, (set, frozenset)):
        raise Error("[optimizer] expected parameters in an order, got a set, whose order is another in every run")
    return params


def _listed(params) -> list:
    if isinstance(params, (str, bytes)) or not isinstance(params, Iterable):
        raise Error(f"[optimizer] params: expected a list of parameters, of pairs of a name and a parameter, or of groups, got {shown(params)}")
    return list(_ordered(params))


def _with_names(params):
    """Groups of parameters whose names, where there are any, stand beside them in "names"."""
    if isinstance(params, torch.Tensor):
        raise Error("[optimizer] expected a list of parameters, got a tensor alone")
    groups = [params] if isinstance(params, dict) else _listed(params)
    are_groups = [isinstance(group, dict) for group in groups]
    if any(are_groups) and not all(are_groups):
        raise Error("[optimizer] expected groups or parameters, got both in one list")
    if groups and not are_groups[0]:
        groups = [{"params": groups}]
    result = []
    for group in groups:
        group = dict(group)
        if "params" not in group:
            raise Error(f"[optimizer] params: expected it in every group, got one with {', '.join(map(str, group)) or 'nothing'}")
        given = group["params"]
        given = [given] if isinstance(given, torch.Tensor) else _listed(given)
        named = [isinstance(item, tuple) for item in given]
        for item in given:
            if isinstance(item, tuple) and not (len(item) == 2 and isinstance(item[0], str)):
                raise Error(f"[optimizer] expected pairs of a name and a parameter, got {shown(item)}")
        if any(named):
            if not all(named):
                raise Error("[optimizer] expected all parameters of a group with names or none, got both")
            group["names"] = [name for name, _ in given]
            given = [p for _, p in given]
        group["params"] = given
        result.append(group)
    return result
