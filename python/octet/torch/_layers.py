"""What coat() makes of the modules of a transformers layer: subclasses of their own classes, with the same parameters and children.

A norm and the linears that read it are one block: the codes that these read are made of the norm's values before any rounding, and
the scales of their weights and of their gradients are shared, as in a run. The norm runs the block and keeps the results until the
linears are called with its output. A sum of the residual stream belongs to the block of the norm behind it.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from dataclasses import replace

import torch

from ._blocks import Spec
from ._functions import run, to_text

SUM = "_octet_sum"  # attribute of a sum: its two addends, and its version


class Link:
    """A producer (a norm, an activation, or what else makes x) and the linears that read it; the results of its block while they are not
    taken."""

    def __init__(self, spec: Spec, linears):
        self.linears = tuple(linears)
        self.names = ", ".join(linear.name for linear in spec.linears)
        self.text, self.text_alone = to_text(spec), to_text(replace(spec, linears=())) if spec.norm else None
        self.text_of_sum = to_text(replace(spec, n_addends=2)) if spec.norm else None
        self._is_made = spec.norm is not None or spec.act is not None  # what linears read: their gradients do not go through it
        self.residual = self._made = None
        for place, module in enumerate(self.linears):
            module._link, module._place = self, place

    def __getstate__(self):
        return {**self.__dict__, "_made": None, "residual": None}

    @property
    def parameters(self) -> list:
        return [p for module in self.linears for p in (module.weight, module.bias) if p is not None]

    def keep(self, shown, results) -> None:
        """By the linears' places: names of objects would make each layer a graph of its own for torch.compile."""
        self._made = (shown, _version(shown), list(results))

    def take(self, module, x):
        """The module's result where x is what the producer gave; None where it is something else."""
        if self._made is None:
            return None
        shown, version, results = self._made
        y = None
        is_same = x is shown and _version(x) == version
        if is_same and version is None:  # a hook may change x for all linears
            is_same = not any(linear._forward_pre_hooks for linear in self.linears)
        if is_same and self._is_made and _is_gradient_asked(x):
            is_same = False
        if is_same:
            y, results[module._place] = results[module._place], None
        if all(result is None for result in results):
            self._made = None
        if y is None:
            self.tell("was called with another input than the module before it gave, or with one that has a hook on its gradient")
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


def _is_gradient_asked(tensor) -> bool:
    return not torch.compiler.is_compiling() and (bool(tensor._backward_hooks) or tensor.retains_grad)


def _version(tensor) -> int | None:
    """Counts changes in place; None where nobody does."""
    return None if torch.compiler.is_compiling() or tensor.is_inference() else tensor._version


def _apart(hooks, x):
    """x for these hooks: a copy while a graph is traced, where nobody would see that they change it in place."""
    return x.clone() if hooks and torch.compiler.is_compiling() else x


def summed(x, addend):
    """x + addend, which the norm behind may take as a sum."""
    total = x + addend
    if torch.compiler.is_compiling() or total.is_inference() or x.shape != addend.shape:
        return total
    if {x.dtype, addend.dtype} == {torch.bfloat16}:
        setattr(total, SUM, (x, addend, total._version))
    return total


def _addends(x):
    """The addends of x as summed() made it and nobody has changed it since; None of another tensor, and of one whose gradient somebody
    asks for (FullyShardedDataParallel does between layers): that of the sum, which none would go through."""
    if torch.compiler.is_compiling() or _is_gradient_asked(x):
        return None
    pair = getattr(x, SUM, None)
    return pair[:2] if pair is not None and pair[2] == x._version else None


class Norm:
    """An RMSNorm or LayerNorm: x in groups of 8 bits is kept. `_octet` is its Link, or its block's text where no linears belong to it."""

    def forward(self, x):
        weights = [self.weight] if getattr(self, "bias", None) is None else [self.weight, self.bias]
        if not isinstance(self._octet, str):
            return self._run(x, weights)
        if _addends(x) is not None:
            delattr(x, SUM)  # autograd keeps x, which shall not keep these
        return run(self._octet, [x, *weights])[0]

    def _run(self, x, weights):
        link = self._octet
        pair = _addends(x)
        if link.is_apart:
            link.residual = x
            return run(link.text_alone, [x, *weights])[0]
        if pair is None:
            *results, link.residual, shown = run(link.text, [x, *weights, *link.parameters], shows=True)
        else:
            link.residual, *results, shown = run(link.text_of_sum, [*pair, *weights, *link.parameters], shows=True)
        link.keep(shown, results)
        return _apart(self._forward_hooks, shown)


def normed_of(norm, x):
    """The norm of x, and x as it leaves the norm's block."""
    normed, link = norm(x), norm._octet
    if isinstance(link, str):
        return normed, x
    residual, link.residual = link.residual, None
    return normed, residual


def activated(link, act_fn, inputs):
    """What a linear reads: act_fn of the first input, times the second where there is one. The inputs are kept in groups of 8 bits, and
    the linear's result for its call."""
    if link.is_apart or _has_backward_hooks(act_fn):
        y = act_fn(inputs[0])
        return y if len(inputs) == 1 else y * inputs[1]
    if act_fn._forward_hooks or act_fn._forward_pre_hooks:
        act_fn(inputs[0])
    result, shown = run(link.text, [*inputs, *link.parameters], shows=True)
    link.keep(shown, [result])
    return shown


class GatedMlp:
    """down_proj(act_fn(gate_proj(x)) * up_proj(x)). `_octet`: the Link of down_proj."""

    def forward(self, x):
        return self.down_proj(activated(self._octet, self.act_fn, [self.gate_proj(x), self.up_proj(x)]))


class DecoderLayer:
    """x + attention(norm(x)), then x + mlp(norm(x)); sums go to the norms behind them."""

    def forward(self, hidden_states, *args, **kwargs):
        if args:
            kwargs = _named(self, args, kwargs)
        normed, residual = normed_of(self.input_layernorm, hidden_states)
        attention = self.self_attn(hidden_states=_apart(self.self_attn._forward_pre_hooks, normed), **kwargs)[0]
        normed, residual = normed_of(self.post_attention_layernorm, summed(residual, attention))
        return _left(self, residual, self.mlp(_apart(self.mlp._forward_pre_hooks, normed)))


def _named(layer, args, kwargs) -> dict:
    """What comes behind hidden_states, by the names of the layer's own forward pass."""
    given = inspect.signature(type(layer)._octet_original.forward).bind(layer, None, *args, **kwargs).arguments
    return {**given.pop("kwargs", {}), **{name: value for name, value in given.items() if name not in ("self", "hidden_states")}}


def _left(layer, residual, output):
    """A layer's result. A checkpoint keeps what the next layer reads, which shall not keep its addends."""
    is_kept = layer.training and getattr(layer, "gradient_checkpointing", False)
    return residual + output if is_kept else summed(residual, output)


class ViTLayer:
    """x + attention(norm(x)), then x + mlp(norm(x)), of ViT; sums go to the norms behind them."""

    def forward(self, hidden_states, *args, **kwargs):
        normed, residual = normed_of(self.layernorm_before, hidden_states)
        attention = self.dropout(self.attention(_apart(self.attention._forward_pre_hooks, normed), *args, **kwargs)[0])
        normed, residual = normed_of(self.layernorm_after, summed(residual, attention))
        return _left(self, residual, self.dropout(self.mlp(_apart(self.mlp._forward_pre_hooks, normed))))


class ViTMlp:
    """fc2(activation_fn(fc1(x))). `_octet`: the Link of fc2."""

    def forward(self, x):
        return self.fc2(activated(self._octet, self.activation_fn, [self.fc1(x)]))


class BertSelfAttention:
    """Attention whose query, key and value read the same codes, and share the scales of weights and gradients. `_octet`: their Link."""

    def forward(self, hidden_states, *args, **kwargs):
        link = self._octet
        if not link.is_apart:
            link.keep(hidden_states, run(link.text, [hidden_states, *link.parameters]))
        return super().forward(hidden_states, *args, **kwargs)


class BertIntermediate:
    """intermediate_act_fn(dense(x)). `_octet`: the Link of the linear behind it, which is another module's."""

    def forward(self, x):
        return _apart(self._forward_hooks, activated(self._octet, self.intermediate_act_fn, [self.dense(x)]))


class BertOutput:
    """LayerNorm(dense(x) + input_tensor): the sum goes to the norm, and with it to the linear of this layer that reads it."""

    def forward(self, hidden_states, input_tensor):
        hidden_states = _apart(self._forward_pre_hooks, hidden_states)
        return normed_of(self.LayerNorm, summed(self.dropout(self.dense(hidden_states)), input_tensor))[0]


_ALL = (Norm, GatedMlp, DecoderLayer, ViTLayer, ViTMlp, BertSelfAttention, BertIntermediate, BertOutput)
_KINDS = {kind.__name__: kind for kind in _ALL}


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
