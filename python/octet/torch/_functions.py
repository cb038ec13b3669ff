"""Blocks as functions that autograd differentiates, and as operators octet::block_forward and octet::block_backward, which
torch.compile keeps in its graphs. A block is known by its text here: strings are what a graph can hold."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import torch
from torch.autograd.function import once_differentiable

from .._error import Error
from ._blocks import LinearSpec, Spec, block, check, check_plain, check_whole, is_taken

_DTYPE = torch.bfloat16
kept_types: dict[int, str] | None = None  # by address, while report() asks
_specs: dict[str, Spec] = {}


def to_text(spec: Spec) -> str:
    text = json.dumps(asdict(spec))
    _specs[text] = spec
    return text


def from_text(text: str) -> Spec:
    """Also of a graph that another process traced."""
    if text not in _specs:
        fields = json.loads(text)
        linears = tuple(LinearSpec(**linear) for linear in fields.pop("linears"))
        _specs[text] = Spec(**fields, linears=linears)
    return _specs[text]


def _constant(f):
    """Runs while a graph is traced, and its result is part of the graph."""
    f._dynamo_marked_constant = True  # torch._dynamo.assume_constant_result, without importing it
    return f


_facts_of: dict[str, tuple] = {}


@_constant
def _facts(text: str) -> tuple:
    """(inputs, columns of the outputs, columns of x, n inputs that are data, is the first a sum, does x go on, shown, the norm alone,
    n of its parameters, activation)."""
    if text not in _facts_of:
        spec = from_text(text)
        alone = to_text(replace(spec, n_addends=1, layer=-1, linears=())) if spec.norm and spec.linears else ""
        _facts_of[text] = (spec.inputs, tuple(n for _, n in spec.outputs), spec.n_in, len(spec.data), spec.n_addends == 2,
                           spec.passes_x, spec.shown, alone, len(spec.norm_parameters), spec.act)
    return _facts_of[text]


@_constant
def linear_text(recipe: str, n_in: int, n_out: int, has_bias: bool) -> str:
    return to_text(Spec(recipe, n_in, linears=(LinearSpec("linear", n_out, has_bias),)))


def run(text: str, tensors, shows: bool = False) -> list:
    """The block's outputs, in order, in the shape of x but for its columns; behind them, with `shows`, x where it goes on (passes_x),
    and the `shown` value.

    tensors: those of spec.inputs in order, float32 or bfloat16; what is float32 is rounded to bfloat16, and results are bfloat16
    under autocast and else of the first tensor's type.
    """
    names, columns, n_in, n_data, _, passes_x, *_ = _facts(text)
    first = tensors[0]
    if not all(map(is_taken, tensors)):
        for name, tensor in zip(names, tensors):
            check(name, tensor)
    if not torch.compiler.is_compiling():
        check_plain(tensors)
        check_whole(names[n_data:], tensors[n_data:], from_text(text).parameter_shapes)
        if shows and torch.is_inference_mode_enabled():
            with torch.inference_mode(False), torch.no_grad():  # changes in place of what is shown are counted
                return run(text, tensors, shows)
    if first.dim() == 0 or first.shape[-1] != n_in or any(t.shape != first.shape for t in tensors[1:n_data]):
        raise Error(f"[torch] {', '.join(names[:n_data])}: expected {n_in} columns, got {[list(t.shape) for t in tensors[:n_data]]}")
    if any(tensor.device != first.device for tensor in tensors[1:]):
        raise Error(f"[torch] {', '.join(names)}: expected tensors on one device, got {[str(t.device) for t in tensors]}", "device")
    is_kept = first.dtype is _DTYPE or torch.is_autocast_enabled(first.device.type)
    tensors = [tensor if tensor.dtype is _DTYPE else tensor.to(_DTYPE) for tensor in tensors]
    if first.numel() == 0:
        results = _of_no_rows((*columns, *[n_in] * ((passes_x + 1) * shows)), tensors)
    elif torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        wanted = tuple(name for name, tensor in zip(names, tensors) if tensor.requires_grad)
        results = list(_Apply.apply(text, wanted, shows, *tensors))
    else:
        results = _results(text, (), shows, tensors)[0]
    return results if is_kept else [result.to(first.dtype) for result in results]


def _of_no_rows(columns, tensors) -> list:
    """Empty results, through which gradients of zeros go back."""
    touched = sum(tensor.sum() for tensor in tensors) * 0
    return [tensors[0].new_zeros((*tensors[0].shape[:-1], n)) + touched for n in columns]


def _results(text: str, wanted, shows: bool, tensors) -> tuple[list, list]:
    """Outputs, what is shown behind them, and what is kept."""
    _, columns, _, n_data, is_sum, passes_x, _, alone, n_parameters, act = _facts(text)
    made = _forward(text, wanted, tensors)
    given, kept = made[:len(columns)], made[len(columns):]
    if not shows:
        return given, kept
    if act:
        return [*given, _activated(act, tensors)], kept
    x = given[0] if is_sum else tensors[0]
    shown = _forward(alone, (), [x, *tensors[n_data:n_data + n_parameters]])[0]
    return [*given, *([x] if passes_x else []), shown], kept


def _activated(act: str, tensors):
    if act == "silu":
        return torch.nn.functional.silu(tensors[0]) * tensors[1]
    return torch.nn.functional.gelu(tensors[0], approximate="tanh" if act == "tanh" else "none")


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx, text, wanted, shows, *tensors):
        given, kept = _results(text, wanted, shows, tensors)
        ctx.text, ctx.wanted, ctx.lead = text, wanted, tensors[0].shape[:-1]
        ctx.shapes = [tensor.shape for tensor in tensors]
        ctx.save_for_backward(*[tensors[i] for i in _read_by(text, wanted, tensors[0])], *kept)
        ctx.set_materialize_grads(False)
        return tuple(given)

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients):
        names, columns, _, _, _, passes_x, shown, *_ = _facts(ctx.text)
        like = None
        for gradient in gradients:
            like = gradient if like is None else like
        if like is None:
            return (None, None, None, *[None for _ in ctx.shapes])
        if not torch.compiler.is_compiling():
            check_plain([gradient for gradient in gradients if gradient is not None])
        behind = list(zip((("x",) if passes_x else ()) + (shown,), gradients[len(columns):]))
        hidden = [name for name, dy in behind if dy is not None]
        dys = [like.new_zeros((*ctx.lead, n)) if dy is None else dy for dy, n in zip(gradients, columns)]
        dys += [dy for _, dy in behind if dy is not None]
        made = _backward(ctx.text, ctx.wanted, hidden, [*ctx.saved_tensors, *dys])
        of = dict(zip(ctx.wanted, made))
        return (None, None, None, *[of[name].view(shape) if name in of else None for name, shape in zip(names, ctx.shapes)])


def _read_by(text: str, wanted, x) -> tuple[int, ...]:
    """Which inputs the backward pass reads."""
    if torch.compiler.is_compiling():
        return _read_of_any_rows(text, wanted, x.device.type)
    return _read(text, wanted, x.device, x.numel() // from_text(text).n_in)


@_constant
def _read_of_any_rows(text: str, wanted, kind: str) -> tuple[int, ...]:
    return _read(text, wanted, torch.device(kind, torch.cuda.current_device()) if kind == "cuda" else torch.device(kind), 16)


def _read(text: str, wanted, device, rows: int) -> tuple[int, ...]:
    spec = from_text(text)
    names = block(text, spec, rows, tuple(wanted), (), device).read_inputs
    return tuple(i for i, name in enumerate(spec.inputs) if name in names)


def _forward(text: str, wanted, tensors) -> list:
    if torch.compiler.is_compiling():
        return torch.ops.octet.block_forward(list(tensors), text, list(wanted))
    return forward(tensors, text, wanted)


def _backward(text: str, wanted, hidden, tensors) -> list:
    if torch.compiler.is_compiling():
        return torch.ops.octet.block_backward(list(tensors), text, list(wanted), list(hidden))
    return backward(tensors, text, wanted, hidden)


def _laid_out(tensor):
    """As kernels read it: rows one after another, aligned as allocators align (cuBLASLt chooses algorithms for 256 bytes)."""
    tensor = tensor.resolve_neg()
    if not tensor.is_contiguous():
        return tensor.contiguous()
    return tensor if tensor.data_ptr() % (16 if tensor.is_cpu else 256) == 0 else tensor.clone()


def _block_of(text: str, tensors, wanted, hidden=(), from_outputs: bool = False):
    """The block for these tensors: inputs, or (from_outputs) with gradients of outputs and of `hidden` at the end."""
    spec = from_text(text)
    rows = tensors[-1 - len(hidden)].numel() // spec.outputs[-1][1] if from_outputs else tensors[0].numel() // spec.n_in
    return spec, block(text, spec, int(rows), tuple(wanted), tuple(hidden), tensors[-1].device)


def forward(tensors, text: str, wanted) -> list:
    """Outputs in x's shape, then what is kept. A quantizer that met NaN or infinity makes the outputs NaN, but for the sum."""
    _, made = _block_of(text, tensors, wanted)
    given, kept = made.forward([_laid_out(tensor) for tensor in tensors])
    if kept_types is not None:
        kept_types.update((tensor.data_ptr(), made.outputs.types[name]) for tensor, name in zip(kept, made.kept))
    return given + kept


def backward(tensors, text: str, wanted, hidden) -> list:
    """Gradients of `wanted`. tensors: inputs that are read, what is kept, and gradients of outputs and of `hidden`."""
    _, made = _block_of(text, tensors, wanted, hidden, from_outputs=True)
    n_stored = len(made.read_inputs) + len(made.kept)
    dys = [dy if dy.dtype is _DTYPE else dy.to(_DTYPE) for dy in tensors[n_stored:]]
    return made.backward([_laid_out(tensor) for tensor in (*tensors[:n_stored], *dys)])


def _fake_forward(tensors, text, wanted):
    spec, made = _block_of(text, tensors, wanted)
    given = [tensors[0].new_empty((*tensors[0].shape[:-1], n)) for _, n in spec.outputs]
    return given + [_fake(made.outputs, name, tensors) for name in made.kept]


def _fake_backward(tensors, text, wanted, hidden):
    _, made = _block_of(text, tensors, wanted, hidden, from_outputs=True)
    return [_fake(made.gradients, f"grad:{name}", tensors) for name in wanted]


def _fake(fields, name, tensors):
    shape, dtype = fields.tensors[name]
    return tensors[0].new_empty(shape, dtype=dtype)


_library = torch.library.Library("octet", "FRAGMENT")
for _name, _arguments, _real, _meta in (("block_forward", "", forward, _fake_forward),
                                        ("block_backward", ", str[] hidden", backward, _fake_backward)):
    _library.define(f"{_name}(Tensor[] tensors, str text, str[] wanted{_arguments}) -> Tensor[]")
    _library.impl(_name, _real, "CompositeExplicitAutograd")
    torch.library.register_fake(f"octet::{_name}", _meta, lib=_library)
