"""What the optimizer asks of the tensors that it is given."""

from __future__ import annotations

import torch

from . import _optimizer as _c
from ._error import Error

DTYPES = {torch.float32: _c.F32, torch.bfloat16: _c.BF16, torch.float16: _c.FP16}


def local(p):
    """This rank's part of a sharded tensor; groups start where it starts."""
    return p.to_local() if hasattr(p, "to_local") else p.detach()


def check_parameter(name: str, p) -> None:
    if not isinstance(p, torch.Tensor):
        raise Error(f"[optimizer] {name}: expected a parameter, got {type(p).__name__}")
    part = local(p)
    if part.device.type not in ("cpu", "cuda"):
        raise Error(f"[optimizer] {name}: expected a parameter on the CPU or a CUDA device, got one on {part.device}", "device")
    if part.dtype not in DTYPES:
        raise Error(f"[optimizer] {name}: expected float32, bfloat16 or float16, got {part.dtype}")
    if part.layout != torch.strided or torch.empty_like(part).stride() != part.stride():
        raise Error(f"[optimizer] {name}: expected memory without gaps and overlaps, got strides {list(part.stride())}")


def check_state(name: str, weight, state, fields) -> None:
    """Whether states belong to a weight as it is now. fields: those of a new one (_state_memory.Field)."""
    wanted = [("step", torch.int64, None), *((field.key, field.dtype, field.shape) for field in fields)]
    for key, dtype, shape in wanted:
        own = state.get(key)
        if not torch.is_tensor(own) or own.dtype != dtype or (shape is not None and (own.shape, own.device) != (shape, weight.device)):
            what = "none" if own is None else f"{own.dtype} {list(own.shape)} on {own.device}" if torch.is_tensor(own) else own
            raise Error(f"[optimizer] {name}: expected the state {key} of a parameter {weight.dtype} {list(weight.shape)} on "
                        f"{weight.device}, {dtype} {list(shape or ())}, got {what}: make the optimizer when the model has its "
                        "type and place, or load_state_dict() what state_dict() gave")


def gradient_of(name: str, gradient, weight):
    """The gradient as it lies beside the weight; a copy where it lies otherwise."""
    if gradient.layout != torch.strided or gradient.dtype not in DTYPES or gradient.device != weight.device:
        raise Error(f"[optimizer] {name}: expected a dense gradient of float32, bfloat16 or float16 on {weight.device}, got "
                    f"{gradient.dtype} {gradient.layout} on {gradient.device}")
    if gradient.shape != weight.shape:
        raise Error(f"[optimizer] {name}: expected a gradient {list(weight.shape)}, got {list(gradient.shape)}")
    if gradient.numel() > 0 and gradient.untyped_storage().nbytes() == 0:
        raise Error(f"[optimizer] {name}: expected a gradient with memory, got one whose storage is freed")
    if gradient.stride() != weight.stride():
        gradient = torch.empty_like(weight, dtype=gradient.dtype).copy_(gradient)
    return gradient


def master_of(weight, master):
    """The f32 master: the bits of weight and remainder together, the master itself, or the weight."""
    if master is None:
        return weight.to(torch.float32).clone()
    if master.dtype == torch.float32:
        return master.clone()
    bits = (weight.view(torch.int16).to(torch.int32) << 16) + master.to(torch.int32)
    return bits.view(torch.float32)


def take_master(weight, own, saved) -> None:
    """Masters that were saved, as `own`: i16 remainders or f32."""
    if saved.shape != weight.shape:
        raise Error(f"[optimizer] master: expected shape {list(weight.shape)}, got {list(saved.shape)}", "bad_data")
    if saved.dtype == own.dtype:
        own.copy_(saved)
    elif own.dtype == torch.float32:
        own.copy_(master_of(weight, torch.empty_like(weight, dtype=saved.dtype).copy_(saved)))
    else:
        exact = torch.empty_like(weight, dtype=torch.float32).copy_(saved).view(torch.int32).to(torch.int64)
        rest = exact - (weight.view(torch.int16).to(torch.int64) << 16)
        if rest.numel() > 0 and int(rest.abs().max()) > 0x8000:
            raise Error("[optimizer] expected masters of these weights (load the model first), got those of others", "bad_data")
        own.copy_(rest.clamp(-0x8000, 0x7FFF))


def fitting(meta, like, key: str):
    if meta is None or meta.shape != like.shape:
        raise Error(f"[optimizer] {key}_meta: expected shape {list(like.shape)}, got "
                    f"{None if meta is None else list(meta.shape)}", "bad_data")
    return meta.to(like.dtype)


def address(tensor) -> int | None:
    """Of a tensor that may be absent."""
    return None if tensor is None else tensor.data_ptr()


def increment_version(tensors) -> None:
    """Tells autograd that these have changed: a backward pass that saved their old values then raises, as with torch's own."""
    increment = getattr(torch.autograd.graph, "increment_version", None)
    if increment is not None and tensors:
        increment(tensors)
