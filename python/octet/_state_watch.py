"""Whether the states that a plan was made of are still there, and where they were.

Callers replace states: trainers move them to the CPU between steps and back, ReLoRA sets them to zero, pruning swaps them.
Rows of addresses hold as long as every state is the same tensor in the same memory. Cost: five calls of C for all tensors.
"""

from __future__ import annotations

import operator
import weakref
from itertools import chain

import torch

_ADDRESS = torch.Tensor.data_ptr


class StateWatch:
    """The states of an optimizer as they are now. They are referred to weakly: one that the caller has moved away is freed."""

    def __init__(self, states):
        self._sizes = None  # nothing holds
        values = _values(states)
        self._keys = [*chain.from_iterable(states.values())]
        self._owners = [*map(_reference, states)]
        self._is_plain = all(isinstance(value, torch.Tensor) for value in values)
        values = _tensors(values)
        self._tensors = [*map(_reference, values)]
        try:
            self._addresses = [*map(_ADDRESS, values)]
            self._sizes = [*map(len, states.values())]
        except RuntimeError:  # the user's own tensors may have no address
            pass

    def holds(self, states) -> bool:
        """Whether they are the same tensors under the same keys, at the same addresses."""
        try:
            if [*map(len, states.values())] != self._sizes or [*chain.from_iterable(states.values())] != self._keys:
                return False
            values = _values(states)
            if not self._is_plain:
                values = _tensors(values)
            return (len(values) == len(self._tensors)
                    and all(map(operator.is_, states, [owner() for owner in self._owners]))
                    # Lists compare by identity first: tensors themselves are compared, or raise, only where one is another.
                    and values == [tensor() for tensor in self._tensors]
                    and [*map(_ADDRESS, values)] == self._addresses)
        except (AttributeError, RuntimeError, TypeError):  # others stand there, or something that has no address
            return False


def _values(states) -> list:
    return [*chain.from_iterable(map(dict.values, states.values()))]


def _tensors(values) -> list:
    return [value for value in values if isinstance(value, torch.Tensor)]


def _reference(value):
    try:
        return weakref.ref(value)
    except TypeError:  # a key of the user's own
        return lambda: value
