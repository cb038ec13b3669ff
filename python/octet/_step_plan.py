"""What one step works on, found anew only where something has moved since the last one."""

from __future__ import annotations

from array import array

import torch

from ._ranks import sharded_over
from ._tensors import gradient_of, local
from ._watch import StateWatch, weight_watch


class Plan:
    """Weights with gradients as they lay when it was made, of these members: (name, p, group number). It keeps none of them alive.

    indices: of the members that it holds, in their order; weights, gradients: theirs, as local tensors.
    """

    def __init__(self, members, indices, weights, gradients):
        self.indices, self.is_whole = indices, len(indices) == len(members)
        self.names = [members[i][0] for i in indices]
        self.is_simple = all(type(members[i][1].data) is torch.Tensor for i in indices)
        self.written = array("Q")  # addresses of gradients that the kernels know
        self.sharded = None  # dimensions of meshes over which the norm is summed; None: not looked for
        self._weights = weight_watch(weights, gradients)
        self._states = None
        self._idle: list = []  # members that may get no gradient

    def watch(self, members, optimizer) -> None:
        """All members and states: a member that the plan leaves out gets no gradient and states stay, or it holds no more."""
        planned = set(self.indices)
        self._idle = [i for i, (_, p, _) in enumerate(members) if i not in planned and (p.grad is None or local(p).numel() > 0)]
        self._states = StateWatch(optimizer.state)
        if _has_norm(optimizer):
            self.sharded = sharded_over([p for _, p, _ in members if p.grad is not None])

    def knows_ranks(self, optimizer) -> bool:
        """Whether it knows over which ranks a norm is summed, where there is one."""
        return self.sharded is not None or not _has_norm(optimizer)

    def find(self, params, states):
        """(parameters, gradients that must live until the step is done, addresses of all gradients), or None where the plan does
        not hold. params, states: of all members, as they are now."""
        if self._weights is None or not self._states.holds(states):
            return None
        if not self.is_whole:
            if any(params[i].grad is not None for i in self._idle):
                return None
            params = [params[i] for i in self.indices]
        addresses = self._new_addresses()
        if self.is_simple and self._weights.read(params, addresses):
            return params, (), addresses
        gradients = [p.grad for p in params]
        if any(gradient is None for gradient in gradients):
            return None
        found = self.given([local(p) for p in params], [local(gradient) for gradient in gradients])
        return found and (params, *found)

    def given(self, weights, gradients):
        """(gradients as they lie beside the weights, their addresses) for tensors that a caller has; None where the plan does not
        hold."""
        if self._weights is None or not self._weights.holds(weights):
            return None
        gradients, addresses = [*map(gradient_of, self.names, gradients, weights)], self._new_addresses()
        return (gradients, addresses) if self._weights.read_given(gradients, addresses) else None

    def _new_addresses(self) -> array:
        return array("Q", bytes(8 * len(self.names)))


def addresses_of(tensors) -> array:
    return array("Q", [tensor.data_ptr() for tensor in tensors])


def _has_norm(optimizer) -> bool:
    return optimizer.clip > 0 or optimizer.skip_nonfinite
