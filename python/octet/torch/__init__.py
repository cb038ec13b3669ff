"""COAT's activations and 8-bit linears inside PyTorch models (docs/pytorch_models.md).

    octet.torch.coat(model)       a transformers model keeps its activations in 8 bits and multiplies in 8 bits, in place
    octet.torch.convert(model)    every nn.Linear of any model multiplies in 8 bits, in place
    octet.torch.Linear            such a linear by itself
    octet.torch.report(model)     what each converted module keeps for its backward pass

Kernels and definitions are those of the program's recipes. A converted model saves and loads as before: names, shapes and types of its
state_dict are the same. Tensors on the CPU or a CUDA device; PyTorch 2.4 or later.
"""

from __future__ import annotations

from .._error import Error

try:
    import torch  # noqa: F401
except ImportError:
    raise Error("octet.torch: expected the package torch, it is not installed", "device") from None

from ._convert import coat, convert
from ._linear import RECIPES, Linear
from ._report import Report, report

__all__ = ["RECIPES", "Linear", "Report", "coat", "convert", "report"]
