"""What coat() makes of the modules of a transformers layer: subclasses of their own classes, with the same parameters and children.

A norm and the linears that read it are one block: the codes that these read are made of the norm's values before any rounding, and
the scales of their weights and of their gradients are shared, as in a run. The norm runs the block and keeps the results until the
linears are called with its output. A sum of the residual stream belongs to the block of the norm behind it.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace

import torch

from ._blocks import Spec
from ._functions import run, to_text

SUM = "_octet_sum"  # attribute of a sum: its two addends, and its version


class Link:
    """A producer (a norm, or a gated product) and the linears that read it; the results of its block while they are not taken."""

    def __init__(self, spec: Spec, linears):
        self.linears = tuple(linears)
        self.names = ", ".join(linear.name for linear in spec.linears)
        self.text, self.text_alone = to_text(spec), to_text(replace(spec, linears=())) if spec.norm else None
        self.text_of_sum = to_text(replace(spec, n_addends=2)) if spec.norm else None
        self.residual = self._made = None
        for module in self.linears:
            module._link = self

    def __getstate__(self):
        return {**self.__dict__, "_made": None, "residual": None}

    @property
    def parameters(self) -> list:
        return [p for module in self.linears for p in (module.weight, module.bias) if p is not None]

    def keep(self, shown, results) -> None:
        self._made = (shown, _version(shown), dict(zip(map(id, self.linears), results)))

    def take(self, module, x):
        """The module's result where x is what the producer gave; None where it is something else."""
        if self._made is None:
            return None
        shown, version, results = self._made
        y = results.pop(id(module), None) if x is shown and _version(x) == version else None
        if not results:
            self._made = None
        if y is None:
            self.tell("was called with another input than the module before it gave")
        return y

    @property
    def is_apart(self) -> bool:
        """Whether the linears must be called for what they give: they have hooks on gradients."""
        apart = any(map(_has_backward_hooks, self.linears))
        if apart:
            self.tell("has a hook on its gradients")
        return apart

    def tell(self, why: str) -> None:
        warnings.warn(f"octet.torch: one of {self.names} {why}: it is quantized by itself", stacklevel=4)


def _has_backward_hooks(module) -> bool:
    return bool(module._backward_hooks or module._backward_pre_hooks)


def _version(tensor) -> int:
    """Counts changes in place, where anybody does."""
    return 0 if torch.compiler.is_compiling() or tensor.is_inference() else tensor._version


def summed(x, addend):
    """x + addend, which the norm behind may take as a sum."""
    total = x + addend
    if torch.compiler.is_compiling() or total.is_inference() or x.shape != addend.shape:
        return total
    if {x.dtype, addend.dtype} == {torch.bfloat16}:
        setattr(total, SUM, (x, addend, total._version))
    return total


def _addends(x):
    """The addends of x as summed() made it and nobody has changed it since; None of another tensor."""
    if torch.compiler.is_compiling():
        return None
    pair = getattr(x, SUM, None)
    return pair[:2] if pair is not None and pair[2] == x._version else None


class Norm:
    """An RMSNorm: x in groups of 8 bits is kept. `_octet` is its Link, or its block's text where no linears belong to it."""

    def forward(self, x):
        weight = self.weight
        if not isinstance(self._octet, str):
            return self._run(x, weight)
        if _addends(x) is not None:
            delattr(x, SUM)  # autograd keeps x, which shall not keep these
        return run(self._octet, [x, weight])[0]

    def _run(self, x, weight):
        link = self._octet
        pair = _addends(x)
        if link.is_apart:
            link.residual = x
            return run(link.text_alone, [x, weight])[0]
        if pair is None:
            *results, link.residual, shown = run(link.text, [x, weight, *link.parameters], shows=True)
        else:
            link.residual, *results, shown = run(link.text_of_sum, [*pair, weight, *link.parameters], shows=True)
        link.keep(shown, results)
        return shown


class GatedMlp:
    """down_proj(act_fn(gate_proj(x)) * up_proj(x)): gate and up in groups of 8 bits are kept. `_octet`: the Link of down_proj."""

    def forward(self, x):
        link = self._octet
        gate, up = self.gate_proj(x), self.up_proj(x)
        if link.is_apart or _has_backward_hooks(self.act_fn):
            return self.down_proj(self.act_fn(gate) * up)
        if self.act_fn._forward_hooks or self.act_fn._forward_pre_hooks:
            self.act_fn(gate)
        result, shown = run(link.text, [gate, up, *link.parameters], shows=True)
        link.keep(shown, [result])
        return self.down_proj(shown)


class DecoderLayer:
    """x + attention(norm(x)), then x + mlp(norm(x)); sums go to the norms behind them."""

    def forward(self, hidden_states, *args, **kwargs):
        normed, residual = self._normed(self.input_layernorm, hidden_states)
        attention = self.self_attn(normed, *args, **kwargs)[0]
        x = summed(residual, attention)
        normed, residual = self._normed(self.post_attention_layernorm, x)
        output = self.mlp(normed)
        # A checkpoint keeps what the next layer reads, which shall not keep its addends.
        is_kept = self.training and getattr(self, "gradient_checkpointing", False)
        return residual + output if is_kept else summed(residual, output)

    def _normed(self, norm, x):
        """The norm of x, and x as it leaves the norm's block."""
        normed = norm(x)
        residual, norm._octet.residual = norm._octet.residual, None
        return normed, residual


_KINDS = {kind.__name__: kind for kind in (Norm, GatedMlp, DecoderLayer)}


@functools.cache
def converted_class(kind: str, original: type) -> type:
    """`original` with the forward pass of `kind`, under its own name: frameworks choose layers by it."""
    def reduce(self):
        return _new, (kind, original), self.__dict__.copy()
    return type(original.__name__, (_KINDS[kind], original), {"__module__": original.__module__, "__reduce__": reduce,
                                                              "_octet_original": original})


def _new(kind: str, original: type):
    made = converted_class(kind, original)
    return made.__new__(made)
