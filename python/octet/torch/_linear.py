"""octet.torch.Linear: an nn.Linear whose three products have operands of 8 bits."""

from __future__ import annotations

import torch

from .. import _checks
from .._error import Error
from ._blocks import LinearSpec, check, check_plain
from ._functions import linear_text, run

__all__ = ["RECIPES", "Linear"]

RECIPES = ("fp8_linear", "fp8_row", "fp8_block", "hif8", "mxfp8")
COAT_RECIPES = ("coat", "coat-block")


def recipe_of(name: str, known=RECIPES) -> str:
    if name not in known:
        raise Error(f"[torch] recipe: expected one of {', '.join(known)}, got {name!r}")
    return name


class Linear(torch.nn.Linear):
    """y = x w^T + b with the three products of a recipe: y, dx = dy w and dw = dy^T x read x, w and dy in 8 bits.

    recipe: fp8_linear (E4M3 and E5M2, one scale a tensor), fp8_row, fp8_block, hif8 or mxfp8, each as in a run of the program with one
    linear. x, weight and bias are bfloat16, or float32, which is rounded to bfloat16. Kept for the backward pass are what the recipe
    keeps of x, in 8 bits. An x or dy with NaN or infinity gives NaN.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device=None, dtype=None, recipe: str = "fp8_linear"):
        recipe_of(recipe)
        _checks.integer("torch", "in_features", in_features, 1)
        _checks.integer("torch", "out_features", out_features, 1)
        if (torch.get_default_dtype() if dtype is None else dtype) not in (torch.bfloat16, torch.float32):
            shown = f"None, which is {torch.get_default_dtype()}" if dtype is None else repr(dtype)
            raise Error(f"[torch] dtype: expected torch.bfloat16 or torch.float32, got {shown}")
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.recipe = recipe
        self._link = None  # of what makes x and knows this linear

    def forward(self, x):
        y = None if self._link is None else self._link.take(self, x)
        return y if y is not None else linear(x, self.weight, self.bias, self.recipe)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, recipe={self.recipe}"


def make_linear(module: torch.nn.Linear, recipe: str) -> None:
    module.__class__, module.recipe, module._link = Linear, recipe, None


def linear_spec(name: str, linear: torch.nn.Linear) -> LinearSpec:
    return LinearSpec(name, linear.out_features, linear.bias is not None)


def linear(x, weight, bias, recipe: str):
    """The linear of a weight [n_out, n_in] as `Linear` computes it."""
    n_out, n_in = weight.shape
    if not isinstance(n_in, int):  # of a tracer
        check("weight", weight)
        check_plain([x, weight])
    return run(linear_text(recipe, n_in, n_out, bias is not None), [x, weight] if bias is None else [x, weight, bias])[0]
