"""What each converted module keeps for its backward pass, measured beside the plain model's; and what 8 bits cost its operands."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from .. import _checks, formats
from .._error import Error
from . import _functions
from ._layers import DecoderLayer, Link
from ._linear import Linear

__all__ = ["Report", "report"]

# Recipe: formats of x, w and dy, the elements that share a scale, and what their largest magnitude becomes.
_TENSOR, _GRADIENT, _MX = ("e4m3", "tensor", 448), ("e5m2", "tensor", 57344), ("e4m3", "mx32", 448)
_ROW, _GROUP, _BLOCK = (("e4m3", shared, 448) for shared in ("row", "1x128", "128x128"))
_OPERANDS = {
    "fp8_linear": (_TENSOR, _TENSOR, _GRADIENT),
    "coat": (_TENSOR, _TENSOR, _GRADIENT),
    "coat-block": (_GROUP, _BLOCK, _GRADIENT),
    "fp8_row": (_ROW, _ROW, _GRADIENT),
    "fp8_block": (_GROUP, _BLOCK, _GROUP),
    "hif8": (("hif8", "tensor", 15), ("hif8", "tensor", 15), ("hif8", "tensor", 224)),
    "mxfp8": (_MX, _MX, _MX),
}


@dataclass
class Row:
    """modules: those that compute one block.  kept: (type, bytes) of each tensor that is kept for their backward pass."""

    modules: str
    kept: list[tuple[str, int]] = field(default_factory=list)
    plain: list[tuple[str, int]] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(n for _, n in self.kept)

    @property
    def plain_bytes(self) -> int:
        return sum(n for _, n in self.plain)


@dataclass
class Report:
    """rows: by module.  bytes, plain_bytes: all that the model keeps, other modules' too.  snr: by linear, in dB, of x, w and dy."""

    rows: list[Row]
    bytes: int
    plain_bytes: int
    snr: dict[str, tuple[float, float, float]]

    def __str__(self) -> str:
        lines = [f"{'modules':44} {'kept':>12} {'plain':>12}  types"]
        for row in self.rows:
            types = ", ".join(dict.fromkeys(name for name, _ in row.kept))
            lines.append(f"{row.modules:44} {row.bytes:12,} {row.plain_bytes:12,}  {types}")
        lines.append(f"{'all of the model':44} {self.bytes:12,} {self.plain_bytes:12,}")
        if self.snr:
            lines += ["", f"{'signal to noise, dB':44} {'x':>8} {'w':>8} {'dy':>8}"]
            lines += [f"{name:44} " + " ".join(f"{value:8.1f}" for value in values) for name, values in self.snr.items()]
        return "\n".join(lines)


def report(model: torch.nn.Module, *inputs, accuracy: bool = False, **named) -> Report:
    """Runs the model once on these inputs, and once with its plain modules, and counts what autograd is given to keep: storages, each
    once, without parameters. The model is as before then, but for random numbers that were drawn.

    accuracy: the signal-to-noise ratio of the linears' operands too, for which the sum of its first output is differentiated;
    gradients of parameters stay as they are. dy is NaN where that is nothing to differentiate. Raises octet.Error for a model without
    converted modules.
    """
    if not isinstance(model, torch.nn.Module):
        raise Error(f"[torch] expected a torch.nn.Module, got {type(model).__name__}")
    _checks.flag("torch", accuracy=accuracy)
    units = _units(model)
    if not units:
        raise Error("[torch] report: expected a model that coat() or convert() changed, got one without converted modules")
    rows = {id(module): Row(name) for name, modules in units for module in modules[:1]}
    row_of = {id(module): rows[id(modules[0])] for _, modules in units for module in modules}
    with _Types() as types:
        kept, total = _measured(model, inputs, named, row_of, types)
    with _plain(model):
        plain, plain_total = _measured(model, inputs, named, row_of, {})
    for row in rows.values():
        row.kept, row.plain = kept.get(id(row), []), plain.get(id(row), [])
    return Report(list(rows.values()), total, plain_total, _accuracies(model, inputs, named) if accuracy else {})


def _units(model) -> list:
    """(names, modules) of what computes one block."""
    names = {id(module): name for name, module in model.named_modules()}
    units, seen = [], set()
    for name, module in model.named_modules():
        made = getattr(module, "_octet", None)
        if id(module) in seen or isinstance(module, DecoderLayer) or not (made is not None or isinstance(module, Linear)):
            continue
        members = [module, *(made.linears if isinstance(made, Link) else ())]
        seen.update(map(id, members))
        others = [names[id(member)].rpartition(".")[2] for member in members[1:]]
        units.append((" + ".join([name or type(module).__name__, *others]), members))
    alone = [unit for unit in units if len(unit[1]) == 1 and isinstance(unit[1][0], Linear)]
    owned = {id(member) for unit in units if unit not in alone for member in unit[1]}
    return [unit for unit in units if unit not in alone or id(unit[1][0]) not in owned]


class _Types:
    """Types of kept tensors by address, while blocks run."""

    def __enter__(self):
        _functions.kept_types = {}
        return _functions.kept_types

    def __exit__(self, *error):
        _functions.kept_types = None


@contextlib.contextmanager
def _plain(model):
    """Converted modules as they were before."""
    classes = [(module, type(module)) for module in model.modules()]
    try:
        for module, made in classes:
            if isinstance(module, Linear):
                module.__class__ = torch.nn.Linear
            elif hasattr(module, "_octet_original"):
                module.__class__ = made._octet_original
        yield
    finally:
        for module, made in classes:
            module.__class__ = made


def _measured(model, inputs, named, row_of, types) -> tuple[dict, int]:
    """What is kept, by the id of a row, and bytes of all."""
    parameters = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}
    inside, seen, by_row = [], set(), {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters and storage.data_ptr() not in seen and tensor.numel() > 0:
            seen.add(storage.data_ptr())
            total.append(storage.nbytes())
            if inside:
                name = types.get(tensor.data_ptr(), str(tensor.dtype).removeprefix("torch."))
                by_row.setdefault(id(row_of[inside[-1]]), []).append((name.partition("[")[0], storage.nbytes()))
        return tensor
    total, hooks = [], []
    for module in model.modules():
        if id(module) in row_of:
            hooks.append(module.register_forward_pre_hook(lambda module, _: inside.append(id(module))))
            hooks.append(module.register_forward_hook(lambda *_: inside.pop() and None, always_call=True))
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            held = model(*inputs, **named)
        del held
    finally:
        for hook in hooks:
            hook.remove()
    return by_row, sum(total)


def _accuracies(model, inputs, named) -> dict:
    linears = [(name, module) for name, module in model.named_modules() if isinstance(module, Linear)]
    seen: dict[int, list] = {}

    def keep(module, arguments, y):
        seen[id(module)] = [arguments[0].detach(), None]
        if y.requires_grad:
            y.register_hook(lambda dy: seen[id(module)].__setitem__(1, dy.detach()))
    hooks = [module.register_forward_hook(keep) for _, module in linears]
    try:
        with torch.inference_mode(False), torch.enable_grad():
            output = _first(model(*inputs, **named))
            wanted = [p for p in model.parameters() if p.requires_grad]
            if wanted and isinstance(output, torch.Tensor) and output.requires_grad:
                torch.autograd.grad(output.float().sum(), wanted, allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: _snr_of(module, seen) for name, module in linears if id(module) in seen}


def _first(output):
    """The first output: of a transformers model the loss where labels came, else the logits."""
    while isinstance(output, (tuple, list, Mapping)):
        output = next(iter(output.values() if isinstance(output, Mapping) else output), None)
    return output


def _snr_of(module, seen) -> tuple[float, float, float]:
    """Of a linear's operands; those that share a scale with others' are quantized beside these."""
    x, dy = seen[id(module)]
    members = module._link.linears if module._link is not None else (module,)
    of_x, of_w, of_dy = _OPERANDS[module.recipe]
    dys = [seen[id(member)][1] for member in members]
    return (_snr(x, [x], of_x), _snr(module.weight, [member.weight for member in members], of_w),
            float("nan") if dy is None else _snr(dy, [other for other in dys if other is not None], of_dy))


def _snr(tensor, sharers, operand) -> float:
    format, shared, target = operand
    x = tensor.detach().float().reshape(-1, tensor.shape[-1]).cpu().numpy()
    if shared == "tensor":
        together = np.concatenate([t.detach().float().reshape(-1).cpu().numpy() for t in sharers])
        scale = np.float32(max(np.abs(together).max(initial=0), 2.0**-100) / np.float32(target))
        got = formats.decode(formats.encode(x / scale, format), format) * scale
    elif shared == "mx32":
        padded = np.pad(x, [(0, 0), (0, -x.shape[1] % 32)]).reshape(len(x), -1, 32)
        amax = np.maximum(np.abs(padded).max(axis=2, keepdims=True), 2.0**-100)
        scale = np.exp2(np.ceil(np.log2(amax.astype(np.float64) / 448))).astype(np.float32)
        got = (formats.decode(formats.encode(padded / scale, format), format) * scale).reshape(len(x), -1)[:, : x.shape[1]]
    else:
        got = formats.dequantize(formats.quantize(np.ascontiguousarray(x), format, shared))
    noise = float(np.square(got.astype(np.float64) - x).sum())
    return float("inf") if noise == 0 else 10 * float(np.log10(max(float(np.square(x.astype(np.float64)).sum()), 1e-300) / noise))
