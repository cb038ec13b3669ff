"""Whether what a plan was made of still stands where it stood: src/step_watch.cpp for PyTorch's tensors.

Callers exchange parameters and states: trainers move states to the CPU between steps and back, ReLoRA sets them to zero, pruning swaps
them. Rows of addresses hold as long as every one is the same object in the same memory.
"""

from __future__ import annotations

import ctypes

import torch

from . import _native
from ._error import Error

_FUNCTIONS = ("data_ptr", "dtype", "numel", "dim", "sizes", "strides")


def _make_reader():
    library, tensor = ctypes.CDLL(torch._C.__file__), torch.empty(0)
    words = (ctypes.c_size_t * (type(tensor).__basicsize__ // ctypes.sizeof(ctypes.c_size_t))).from_address(id(tensor))
    try:
        functions = [ctypes.cast(getattr(library, f"aoti_torch_get_{name}"), ctypes.c_void_p).value for name in _FUNCTIONS]
        offset = list(words).index(tensor._cdata) * ctypes.sizeof(ctypes.c_size_t)
    except (AttributeError, ValueError):
        raise Error(f"octet.optim: expected PyTorch 2.4 or later, got {torch.__version__}", "device") from None
    return _native.TensorReader(functions, torch._C.TensorBase, offset)


_READER = _make_reader()


class StateWatch:
    """The states of an optimizer as they are now. They are referred to weakly: one that the caller has moved away is freed."""

    def __init__(self, states):
        try:
            self._watch = _native.StateWatch(_READER, states)
        except (TypeError, ValueError):  # something else stands there, or tensors that have no address
            self._watch = None

    def holds(self, states) -> bool:
        """Whether they are the same tensors under the same keys, at the same addresses."""
        return self._watch is not None and self._watch.holds(states)


def weight_watch(weights, gradients):
    """A WeightWatch of local tensors; None where one has no address."""
    try:
        return _native.WeightWatch(_READER, weights, gradients)
    except (TypeError, ValueError):
        return None
