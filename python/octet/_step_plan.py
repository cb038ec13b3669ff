"""What one step works on, found anew only where something has moved since the last one."""

from __future__ import annotations

import operator
import weakref

import torch

from ._ranks import sharded_over
from ._state_watch import StateWatch
from ._tensors import gradient_of, local

ADDRESS = torch.Tensor.data_ptr
_SIZE = torch.Tensor.numel
_RENEWED_OFTEN = 3  # gradients that are others this often are others in every step


class Plan:
    """Weights with gradients as they lay when it was made, of these members: (name, p, group number). It keeps none of them alive.

    indices: of the members that it holds, in their order; weights, gradients: theirs, as local tensors.
    """

    def __init__(self, members, indices, weights, gradients):
        self.indices, self.is_whole = indices, len(indices) == len(members)
        self.names = [members[i][0] for i in indices]
        self.is_simple = all(type(members[i][1].data) is torch.Tensor for i in indices) and all(w.is_contiguous() for w in weights)
        self.gradient_dtypes = [gradient.dtype for gradient in gradients]
        self.written: list = []  # addresses of gradients that the kernels know
        self.sharded = None  # dimensions of meshes over which the norm is summed; None: not looked for
        self._addresses = list(map(ADDRESS, weights))
        self._sizes = list(map(_SIZE, weights))
        self._dtypes = [weight.dtype for weight in weights]
        self._strides = [weight.stride() for weight in weights]
        self._watch = None
        self._idle: list = []  # members that may get no gradient
        self._seen: list = []  # gradients that lay as they must, by weak references
        self._renewed = 0      # times that others took their places

    def watch(self, members, optimizer) -> None:
        """All members and states: a member that the plan leaves out gets no gradient and states stay, or it holds no more."""
        planned = set(self.indices)
        self._idle = [i for i, (_, p, _) in enumerate(members) if i not in planned and (p.grad is None or local(p).numel() > 0)]
        self._watch = StateWatch(optimizer.state)
        if _has_norm(optimizer):
            self.sharded = sharded_over([p for _, p, _ in members if p.grad is not None])

    def knows_ranks(self, optimizer) -> bool:
        """Whether it knows over which ranks a norm is summed, where there is one."""
        return self.sharded is not None or not _has_norm(optimizer)

    def find(self, params, states):
        """(parameters, gradients as they lie beside the weights, their addresses), or None where the plan does not hold.
        params, states: of all members, as they are now."""
        if not self._watch.holds(states):
            return None
        gradients = [p.grad for p in params]
        if not self.is_whole:
            if any(gradients[i] is not None for i in self._idle):
                return None
            params, gradients = [params[i] for i in self.indices], [gradients[i] for i in self.indices]
        found = self._simple(params, gradients) if self.is_simple else None
        if found is None and all(gradient is not None for gradient in gradients):
            found = self.given([local(p) for p in params], list(map(local, gradients)))
        return found and (params, *found)

    def _simple(self, params, gradients):
        """By a few calls for all tensors, where they lie one after another as their weights do."""
        try:
            if list(map(ADDRESS, params)) != self._addresses or [p.dtype for p in params] != self._dtypes \
                    or list(map(_SIZE, params)) != self._sizes or not all(map(torch.Tensor.is_contiguous, params)) \
                    or [g.dtype for g in gradients] != self.gradient_dtypes:
                return None
            addresses = list(map(ADDRESS, gradients))
            if addresses == self.written:
                addresses = self.written
            return (gradients, addresses) if self._lie_well(gradients, addresses) else None
        except (AttributeError, RuntimeError, TypeError):  # None, or of a kind without memory
            return None

    def _lie_well(self, gradients, addresses) -> bool:
        """Whether all are contiguous and of their sizes. The same objects with the same memory still are."""
        if self._seen and addresses is self.written and all(map(operator.is_, [seen() for seen in self._seen], gradients)):
            return True
        if not all(map(torch.Tensor.is_contiguous, gradients)) or list(map(_SIZE, gradients)) != self._sizes:
            return False
        if self._renewed < _RENEWED_OFTEN:  # with new gradients in every step references are of no use
            self._renewed += 1
            self._seen = list(map(weakref.ref, gradients))
        else:
            self._seen = []
        return True

    def given(self, weights, gradients):
        """(gradients, addresses) for tensors that a caller has; None where the plan does not hold."""
        if list(map(ADDRESS, weights)) != self._addresses or [w.dtype for w in weights] != self._dtypes \
                or [w.stride() for w in weights] != self._strides or list(map(_SIZE, weights)) != self._sizes:
            return None
        gradients = [gradient_of(name, g, w) for name, g, w in zip(self.names, gradients, weights)]
        return (gradients, list(map(ADDRESS, gradients))) if [g.dtype for g in gradients] == self.gradient_dtypes else None


def _has_norm(optimizer) -> bool:
    return optimizer.clip > 0 or optimizer.skip_nonfinite
