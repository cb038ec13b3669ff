"""AdamW with 8-bit states for PyTorch: in place of torch.optim.AdamW, one line.

    optimizer = octet.optim.AdamW(model.named_parameters(), lr=1e-3, weight_decay=0.1)

Equation (Loshchilov & Hutter 2019), in f32, the same operations in the same order as Octet's trainer, so that equal
gradients give equal bits:
    m = b1 m + (1-b1) g    v = b2 v + ((1-b2) g) g    w = w - lr ((m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps) + wd w)
States: Xi et al., COAT, ICLR 2025 (E4M3 in groups of 128 with dynamic range expansion).
"""

from __future__ import annotations

from . import _optimizer as _c
from ._error import Error

try:
    import torch
except ImportError:
    raise Error("octet.optim: expected the package torch, it is not installed", "device") from None

from . import _op
from ._device_step import DeviceStep
from ._groups import parameter_groups
from ._host_step import HostStep
from ._numbers import check_numbers
from ._state_memory import begin, fields_of
from ._tensors import DTYPES, address, check_parameter, check_state, fitting, increment_version, local, master_of, take_master

__all__ = ["AdamW", "parameter_groups"]

_OURS = ("names", "attempt", "format")  # keys of a group beside torch's
_STATES = ("step", "exp_avg", "exp_avg_meta", "exp_avg_sq", "exp_avg_sq_meta", "master")  # of a parameter; some of them


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
    seed: of stochastic rounding.  threads: of the CPU; 0: one per core.
    foreach, fused, capturable: taken for torch.optim.AdamW's sake; any value, all tensors are stepped together in any case.
    amsgrad, maximize, differentiable: False alone.

    On CUDA devices a step is queued on PyTorch's current stream and nothing waits for it; reading `grad_norm`, `skipped` or
    `counts` does. A CUDA graph may hold a step, once one has run with the same parameters; it takes learning rates from
    the device: give lr as a CUDA tensor, or call write_rates() where a scheduler has changed a number.
    Raises octet.Error. One thread at a time.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, state="e4m3+x",
                 state_m=None, state_v=None, master="bf16_remainder", math="fast", clip=0.0, skip_nonfinite=True,
                 group=128, seed=0, threads=0, foreach=None, fused=None, capturable=None, maximize=False,
                 differentiable=False):
        for name, wanted in (("amsgrad", amsgrad), ("maximize", maximize), ("differentiable", differentiable)):
            if wanted:
                raise Error(f"[optimizer] {name}: expected False, got {wanted}: this optimizer has no such update")
        check_numbers({"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "clip": clip})
        self._format = (state_m or state, state_v or state, math, group)
        self._kernels = _c.Kernels(self._format[0], self._format[1], master, math, group, seed, threads)
        self._host, self._device = HostStep(self._kernels), DeviceStep(self._kernels, group, seed)
        self.clip, self.skip_nonfinite = clip, skip_nonfinite
        self._number = _op.register(self)
        defaults = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay, "attempt": 0,
                    "format": list(self._format)}
        super().__init__(_with_names(params), defaults)

    def add_param_group(self, param_group):
        """As torch's; the group may hold (name, parameter) pairs."""
        (group,) = _with_names([param_group])
        first = sum(len(other["params"]) for other in self.param_groups)
        names = group.pop("names", None) or []
        if not isinstance(group["params"], (list, tuple)):
            group["params"] = [group["params"]] if isinstance(group["params"], torch.Tensor) else list(group["params"])
        group["names"] = [name or f"param.{first + i}" for i, name in
                          enumerate(names or [None] * len(group["params"]))]
        known = {name for other in self.param_groups for name in other["names"]}
        for name in group["names"]:
            if name in known:
                raise Error(f"[optimizer] expected every name once, got {name} again")
            known.add(name)
        for name, p in zip(group["names"], group["params"]):
            check_parameter(name, p)
        if len(set(map(id, group["params"]))) < len(group["params"]):
            raise Error("[optimizer] expected every parameter once, got one again in its group")
        check_numbers(group)
        if self.param_groups:
            group.setdefault("attempt", self.param_groups[0]["attempt"])
        super().add_param_group(group)
        self._forget()

    @torch.no_grad()
    def step(self, closure=None):
        """One update of every parameter that has a gradient. Returns what `closure`, which makes them, returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._is_traceable and torch.compiler.is_compiling():
            self._traced_update()
        else:
            self._update()
        return loss

    @torch._disable_dynamo
    def _update(self):
        """A compiled step calls it as it stands where there is no operator for its tensors."""
        members = self._all_members()
        self._refresh({index: local(members[index][1]) for index in self._fresh},
                      {index: self.state[members[index][1]] for index in self._fresh})
        increment_version(self._steps().run(self, members))

    def _traced_update(self):
        """Queues the operator, with all that it reads and changes among its arguments."""
        _op.prepare(self._number)
        which, weights, gradients, states = [], [], [], []
        for index, p, state in self._traced:
            gradient = p.grad
            if gradient is not None:
                which.append(index)
                weights.append(p)
                gradients.append(gradient)
                states.extend(state)
        _op.adamw_step(self._number, which, weights, gradients, states, self._traced_rates)

    def _prepare_trace(self) -> None:
        """What a traced step reads, with states for every parameter that may get a gradient."""
        rows, named, steps = [], [], self._steps()
        for index, (name, p, _) in enumerate(self._all_members()):
            if not p.requires_grad and p.grad is None:
                continue
            state = self.state[p]
            if not state:
                self._fresh.add(index)  # weights may change before their first step
            named.append((name, p.detach(), state))
            rows.append((index, p, state))
        self._begin_or_check(named)
        steps.count_beside([(p, state) for _, p, state in rows])
        self._traced_keys = {index: [key for key in _STATES if key in state] for index, _, state in rows}
        self._traced = [(index, p, [state[key] for key in self._traced_keys[index]]) for index, p, state in rows]
        rates = [group["lr"] for group in self.param_groups]
        self._traced_rates = [rate for rate in rates if torch.is_tensor(rate)]

    def _run_traced(self, which, weights, gradients, states, rates) -> None:
        """The operator's work. The tensors are those of the trace, or copies of them."""
        members = self._all_members()
        states, chosen = iter(states), []
        for index in which:
            chosen.append({key: next(states) for key in self._traced_keys[index]})
        self._refresh(dict(zip(which, weights)), dict(zip(which, chosen)))
        known, now = list(zip(self._traced_rates or [], rates)), []
        for group in self.param_groups:
            now.append(next((given for traced, given in known if traced is group["lr"]), group["lr"]))
        self._steps().run_given(self, [members[i] for i in which], weights, gradients, chosen, now)

    def _refresh(self, weights, states) -> None:
        """Masters that began while a step was traced are what their weights are at their first step. By index of a member."""
        for index in self._fresh & weights.keys():
            master = states[index].get("master")
            if master is not None and master.dtype == torch.float32:
                master.copy_(weights[index])
        self._fresh -= weights.keys()

    def _all_members(self) -> list:
        """(name, parameter, group number) of all."""
        if self._members is None:
            self._members = [(name, p, i) for i, group in enumerate(self.param_groups)
                             for name, p in zip(group["names"], group["params"])]
        return self._members

    def _steps(self):
        """Who steps: where the parameters lie."""
        members = self._all_members()
        return self._device if members and members[0][1].is_cuda else self._host

    def _forget(self, attempt: int | None = None) -> None:
        """Parameters or states are others. attempt: steps that were attempted; None: as they are counted."""
        self._members = self._traced = None
        self._fresh = set()
        self._is_traceable = _op.IS_THERE and not any(hasattr(p, "to_local") for _, p, _ in self._all_members())
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

        States that began together share a buffer. Each is a tensor with a storage of its own all the same: storing or
        cloning one takes its bytes alone; one that is kept as it is keeps the buffer.
        """
        attempt = self._results()["attempt"]
        for group in self.param_groups:
            group["attempt"] = attempt
        return super().state_dict()

    def _results(self) -> dict:
        return self._device.read() or self._host.read()

    def master_weights(self) -> dict[str, torch.Tensor]:
        """The f32 masters by name, in the shapes of their parameters; the weights themselves where they have none."""
        return {name: master_of(local(p), self.state.get(p, {}).get("master"))
                for group in self.param_groups for name, p in zip(group["names"], group["params"])}

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
        parameters = [p for group in self.param_groups for p in group["params"]]
        states = {index: {"step": torch.tensor(float(state["step"])),
                          "exp_avg": self._decoded(self._kernels, local(parameters[index]), state, 0),
                          "exp_avg_sq": self._decoded(self._kernels, local(parameters[index]), state, 1)}
                  for index, state in result["state"].items()}
        return {"state": states, "param_groups": groups}

    @torch.no_grad()
    def load_state_dict(self, state_dict):
        """Takes what state_dict() gave, of any state format, and what torch.optim.AdamW's gives (f32 or BF16 moments).

        Moments of another format are decoded and encoded anew. Load the model's weights first: remainders belong to
        them. Raises octet.Error where a tensor does not fit its parameter; nothing is loaded then.
        """
        parameters = [p for group in self.param_groups for p in group["params"]]
        saved = state_dict["param_groups"]
        counts = [len(group["params"]) for group in saved], [len(group["params"]) for group in self.param_groups]
        if counts[0] != counts[1]:
            raise Error(f"[optimizer] expected groups of {counts[1]} parameters, got {counts[0]}", "bad_data")
        for key in ("amsgrad", "maximize"):
            if any(group.get(key) for group in saved):
                raise Error(f"[optimizer] expected the state of an AdamW without {key}, got one with it", "bad_data")
        for state in state_dict["state"].values():
            missing = {"step", "exp_avg", "exp_avg_sq"} - state.keys()
            if missing:
                raise Error(f"[optimizer] expected the state of an AdamW, got one without {sorted(missing)[0]}", "bad_data")
        order = [index for group in saved for index in group["params"]]
        from_format = tuple(saved[0].get("format", ("f32", "f32", "exact", 128)))
        source = _c.Kernels(from_format[0], from_format[1], "fp32", from_format[2], from_format[3], 0, 1)
        saved_of = {p: state_dict["state"][index] for p, index in zip(parameters, order) if index in state_dict["state"]}
        loaded = {p: {} for p in saved_of}
        begin(self._kernels, [(local(p), state) for p, state in loaded.items()])
        for p, state in loaded.items():
            self._take(local(p), state, saved_of[p], source, from_format)
        names = [group["names"] for group in self.param_groups]
        super().load_state_dict({"state": {}, "param_groups": saved})
        attempts = max((int(state["step"]) for state in loaded.values()), default=0)
        for group, own in zip(self.param_groups, names):
            group["names"], group["format"] = own, list(self._format)
            group.setdefault("attempt", attempts)
        self.state.update(loaded)
        self._forget(self.param_groups[0]["attempt"])

    def __getstate__(self):
        raise Error("[optimizer] expected state_dict() to be stored, got the optimizer itself")

    def _begin_or_check(self, rows) -> None:
        """rows: (name, weight, state). Those without a state yet begin together, in one buffer a device."""
        for name, weight, state in rows:
            check_parameter(name, weight)
            if state:
                check_state(name, weight, state, fields_of(self._kernels, weight))
        begin(self._kernels, [(weight, state) for _, weight, state in rows if not state])

    @staticmethod
    def _decoded(kernels, weight, state, which):
        key = ("exp_avg", "exp_avg_sq")[which]
        stored, meta = state[key].cpu(), state.get(key + "_meta")
        meta = None if meta is None else meta.cpu()
        values = torch.empty_like(stored, dtype=torch.float32)
        kernels.decode(which, stored.data_ptr(), address(meta), values.data_ptr(), values.numel())
        return values.to(weight.device)

    def _encode(self, which, values, state):
        """Stores f32 values on the CPU as a moment of a state."""
        key = ("exp_avg", "exp_avg_sq")[which]
        stored, meta = torch.empty_like(state[key], device="cpu"), state.get(key + "_meta")
        words = None if meta is None else torch.empty_like(meta, device="cpu")
        self._kernels.encode(which, values.data_ptr(), stored.data_ptr(), address(words), values.numel())
        state[key].copy_(stored)
        if meta is not None:
            meta.copy_(words)

    def _take(self, weight, state, saved, source, from_format) -> None:
        """A saved state of a weight as ours, in place of one that has just begun."""
        state["step"] = torch.tensor(int(saved["step"]))
        for which, key in enumerate(("exp_avg", "exp_avg_sq")):
            moment, meta = saved[key], saved.get(key + "_meta")
            if moment.shape != weight.shape:
                raise Error(f"[optimizer] {key}: expected shape {list(weight.shape)}, got {list(moment.shape)}", "bad_data")
            is_same = from_format == self._format and moment.dtype == state[key].dtype
            if is_same:
                state[key].copy_(moment)
                if meta is not None:
                    state[key + "_meta"].copy_(fitting(meta, state[key + "_meta"], key))
                continue
            if moment.is_floating_point():
                values = torch.empty_like(weight, dtype=torch.float32, device="cpu").copy_(moment)
            else:
                layout = source.layout(weight.numel(), DTYPES[weight.dtype])
                groups = (layout.m_groups, layout.v_groups)[which]
                codes = torch.empty_like(weight, dtype=torch.uint8, device="cpu").copy_(moment)
                words = fitting(meta, torch.empty(groups, dtype=torch.int32), key).cpu().contiguous()
                values = self._decoded(source, codes, {key: codes, key + "_meta": words}, which)
            self._encode(which, values, state)
        if "master" in state and saved.get("master") is not None:
            take_master(weight, state["master"], saved["master"])


def _ordered(params):
    if isinstance(params, (set, frozenset)):
        raise Error("[optimizer] expected parameters in an order, got a set, whose order is another in every run")
    return params


def _with_names(params):
    """Groups of parameters whose names, where there are any, stand beside them in "names"."""
    if isinstance(params, torch.Tensor):
        raise Error("[optimizer] expected a list of parameters, got a tensor alone")
    groups = [params] if isinstance(params, dict) else list(_ordered(params))
    if groups and not isinstance(groups[0], dict):
        groups = [{"params": groups}]
    result = []
    for group in groups:
        group = dict(group)
        given = group["params"]
        given = [given] if isinstance(given, torch.Tensor) else list(_ordered(given))
        named = [isinstance(item, tuple) for item in given]
        if any(named):
            if not all(named):
                raise Error("[optimizer] expected all parameters of a group with names or none, got both")
            group["names"] = [name for name, _ in given]
            given = [p for _, p in given]
        group["params"] = given
        result.append(group)
    return result
