"""The optimizer's step as an operator of PyTorch, octet::adamw_step, so that torch.compile traces through it.

Weights, gradients, states and rates are its arguments, since a graph must know what is read and what is changed; numbers, names
and formats are those that the optimizer has when the graph runs. The arguments may be copies of what the trace saw.
"""

from __future__ import annotations

import itertools
import weakref

import torch

IS_THERE = hasattr(torch, "library") and hasattr(torch.library, "register_fake")
_SCHEMA = ("adamw_step(int optimizer, int[] which, Tensor(a!)[] weights, Tensor[] gradients, Tensor(b!)[] states, "
           "Tensor[] rates) -> ()")

_optimizers: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
_numbers = itertools.count()


def register(optimizer) -> int:
    """The number by which a graph knows an optimizer."""
    number = next(_numbers)
    _optimizers[number] = optimizer
    return number


def prepare(number: int) -> bool:
    """Runs while a graph is traced, never in the graph: whether the operator takes the optimizer's tensors."""
    return _optimizers[number]._prepare_trace()


prepare._dynamo_marked_constant = True  # torch._dynamo.assume_constant_result, without importing it


def _step(optimizer, which, weights, gradients, states, rates):
    with torch.no_grad():
        _optimizers[optimizer]._run_traced(which, weights, gradients, states, rates)


def _no_shapes(*arguments):
    return None


if IS_THERE:
    _library = torch.library.Library("octet", "FRAGMENT")
    _library.define(_SCHEMA)
    _library.impl("adamw_step", _step, "CompositeExplicitAutograd")
    torch.library.register_fake("octet::adamw_step", _no_shapes, lib=_library)


def adamw_step(number, which, weights, gradients, states, rates) -> None:
    torch.ops.octet.adamw_step(number, which, weights, gradients, states, rates)
