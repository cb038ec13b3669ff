"""What a compiled step reads and changes, and what it does where that has been exchanged since it was traced."""

from __future__ import annotations

import torch

from ._tensors import local
from ._watch import StateWatch

_STATES = ("step", "exp_avg", "exp_avg_meta", "exp_avg_sq", "exp_avg_sq_meta", "master")  # of a parameter; some of them
_MOST_RETRACES = 4  # for states that were replaced: whoever replaces them in every step would compile in every step


class TracedStep:
    """The arguments of octet::adamw_step for one optimizer, as they were when a graph was traced."""

    def __init__(self):
        self.rows = None  # (index of the member, parameter, its states); None: a graph is traced anew
        self.rates: list = []  # learning rates that are tensors
        self._rows_before: list = []
        self._keys: dict = {}  # of the states, by index
        self._fresh: set = set()  # members whose states began while tracing: weights may change before their first step
        self._watch, self._retraces = None, 0

    def forget(self) -> None:
        """Another graph is to be traced; the one that runs may still ask for its rows."""
        self._rows_before, self.rows, self._fresh = self.rows or self._rows_before, None, set()

    def prepare(self, optimizer, members) -> None:
        """Takes all that a graph may read, with states for every parameter that may get a gradient."""
        rows, named = [], []
        for index, (name, p, _) in enumerate(members):
            if not p.requires_grad and p.grad is None:
                continue
            state = optimizer.state[p]
            if not state:
                self._fresh.add(index)
            named.append((name, p.detach(), state))
            rows.append((index, p, state))
        optimizer._begin_or_check(named)
        optimizer._steps().count_beside([(p, state) for _, p, state in rows])
        self._keys = {index: [key for key in _STATES if key in state] for index, _, state in rows}
        self.rows = [(index, p, [state[key] for key in self._keys[index]]) for index, p, state in rows]
        self.rates = [rate for rate in (group["lr"] for group in optimizer.param_groups) if torch.is_tensor(rate)]
        self._watch, self._rows_before = StateWatch(optimizer.state), []

    def begin_masters(self, params, states) -> None:
        """Masters that began while a step was traced are what their weights are at the first step that is none of a graph's."""
        self._refresh({i: local(params[i]) for i in self._fresh}, {i: states[params[i]] for i in self._fresh})

    def run(self, optimizer, members, which, weights, gradients, states, rates) -> None:
        """The operator's work. The tensors are those of the trace, or copies of them."""
        states, chosen = iter(states), []
        for index in which:
            chosen.append({key: next(states) for key in self._keys[index]})
        self._refresh(dict(zip(which, weights)), dict(zip(which, chosen)))
        if self.rows is not None and self._watch.holds(optimizer.state):
            members = [members[i] for i in which]
        else:
            members, weights, gradients, chosen = self._exchanged(optimizer, members, list(zip(which, weights, gradients, chosen)))
        known, now = list(zip(self.rates, rates)), []
        for group in optimizer.param_groups:
            now.append(next((given for traced, given in known if traced is group["lr"]), group["lr"]))
        optimizer._steps().run_given(optimizer, members, weights, gradients, chosen, now)

    def _exchanged(self, optimizer, members, given):
        """Members, weights, gradients and states as they stand now: the graph's own where they still do."""
        by_index = {index: (p, states) for index, p, states in self.rows or self._rows_before}
        traced, arguments = {}, {}  # weights and gradients by parameter; what the graph has for a state
        for index, weight, gradient, chosen in given:
            p, before = by_index[index]
            traced[id(p)] = weight, gradient
            arguments.update(zip(map(id, before), chosen.values()))
        active = [member for member in members if id(member[1]) in traced or member[1].grad is not None]
        optimizer._begin_or_check([(name, local(p), optimizer.state[p]) for name, p, _ in active])
        optimizer._steps().count_beside([(p, optimizer.state[p]) for _, p, _ in active])
        rows = []
        for _, p, _ in active:
            states = {key: arguments.get(id(own), own) for key, own in optimizer.state[p].items() if key in _STATES}
            rows.append((*(traced.get(id(p)) or (local(p), local(p.grad))), states))
        self._retraces += 1
        if self._retraces <= _MOST_RETRACES:
            self.forget()
        return (active, *(zip(*rows) if rows else ([], [], [])))

    def _refresh(self, weights, states) -> None:
        for index in self._fresh & weights.keys():
            master = states[index].get("master")
            if master is not None and master.dtype == torch.float32:
                master.copy_(weights[index])
        self._fresh -= weights.keys()
