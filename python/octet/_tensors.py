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
    if part.is_neg():
        raise Error(f"[optimizer] {name}: expected a parameter, got a negative view of one")
    if part.layout != torch.strided or torch.empty_like(part).stride() != part.stride():
        raise Error(f"[optimizer] {name}: expected memory without gaps and overlaps, got strides {list(part.stride())}")


def take_state(name, weight, state, fields) -> None:
    """Takes states as they stand, those of the caller's too, or names the one that does not belong to its weight. What lies in
    another order than its weight is laid anew, a counter becomes int64. fields: those of a new state (_state_memory.Field)."""
    state["step"] = _counter(name, weight, state.get("step"))
    if state.get("master") is not None and all(field.key != "master" for field in fields) and weight.dtype == torch.float32:
        expect_own_master(f"{name}: the state master", weight, state.pop("master"))
    for field in fields:
        given = state.get(field.key)
        own = given.to_local() if hasattr(given, "to_local") else given
        if not _is_like(own, field, weight.device):
            raise Error(f"[optimizer] {name}: expected the state {field.key} of a parameter {weight.dtype} {list(weight.shape)} on "
                        f"{weight.device}, {field.dtype} {list(field.shape)}, got {_described(own)}: make the optimizer when the "
                        "model has its type and place, or load_state_dict() what state_dict() gave")
        if own.numel() > 0 and own.untyped_storage().nbytes() == 0:
            raise Error(f"[optimizer] {name}: expected the state {field.key} with memory, got one whose storage is freed")
        own = own.resolve_neg()
        if not lies_as(own, field.strides):
            own = torch.empty_strided(field.shape, field.strides, dtype=field.dtype, device=own.device).copy_(own)
        if own is not given:
            state[field.key] = own


def lies_as(tensor, strides) -> bool:
    """Whether its elements lie as those of a tensor of its shape with these strides."""
    return tensor.stride() == strides or tensor.numel() == 0 or all(
        own == other for size, own, other in zip(tensor.shape, tensor.stride(), strides) if size > 1)


def _is_like(own, field, device) -> bool:
    return torch.is_tensor(own) and own.layout == torch.strided and (own.dtype, own.shape, own.device) == (
        field.dtype, field.shape, device)


def _described(own) -> str:
    if own is None:
        return "none"
    return f"{own.dtype} {list(own.shape)} on {own.device}" if torch.is_tensor(own) else type(own).__name__


def _counter(name, weight, given):
    """How many updates of a weight there were, as int64: on the CPU or beside the weight. Torch counts in float32."""
    is_ours = torch.is_tensor(given) and given.dtype == torch.int64 and given.dim() == 0
    if is_ours and (given.device.type == "cpu" or given.device == weight.device):
        return given
    try:
        count = float(given)
        is_count = (torch.is_tensor(given) or isinstance(given, (int, float))) and count >= 0 and count == int(count)
    except (OverflowError, RuntimeError, TypeError, ValueError):
        is_count = False
    if not is_count:
        raise Error(f"[optimizer] {name}: expected the state step, a number of updates, got "
                    f"{_described(given) if torch.is_tensor(given) and given.numel() != 1 else repr(given)}")
    return torch.tensor(int(count), dtype=torch.int64)


def check_gradient(name: str, gradient, weight) -> None:
    """Raises octet.Error for a gradient that is none of this weight."""
    if gradient.layout != torch.strided or gradient.dtype not in DTYPES or gradient.device != weight.device:
        raise Error(f"[optimizer] {name}: expected a dense gradient of float32, bfloat16 or float16 on {weight.device}, got "
                    f"{gradient.dtype} {gradient.layout} on {gradient.device}")
    if gradient.shape != weight.shape:
        raise Error(f"[optimizer] {name}: expected a gradient {list(weight.shape)}, got {list(gradient.shape)}")
    if gradient.numel() > 0 and gradient.untyped_storage().nbytes() == 0:
        raise Error(f"[optimizer] {name}: expected a gradient with memory, got one whose storage is freed")


def gradient_of(name: str, gradient, weight):
    """The gradient as it lies beside the weight; a copy where it lies otherwise."""
    check_gradient(name, gradient, weight)
    gradient = gradient.resolve_neg()
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


def expect_own_master(where: str, weight, saved) -> None:
    """Raises octet.Error where a master of other weights stands beside float32 ones, which are their own: they must have its values."""
    _check_master(where, weight, saved)
    bits, saved = weight.view(torch.int32), saved.to(weight.device)
    same = bits == saved.view(torch.int32) if saved.dtype == torch.float32 else bits.to(torch.int16) == saved  # the lower halves
    if not bool(same.all()):
        raise Error(f"[optimizer] {where}: expected one whose values the float32 weights have, got one of more exact weights than these: "
                    "load what master_weights() gave into the model first", "bad_data")


def _check_master(where: str, weight, saved) -> None:
    if not torch.is_tensor(saved) or saved.dtype not in (torch.int16, torch.float32):
        raise Error(f"[optimizer] {where}: expected float32, or int16 of bfloat16 weights, got "
                    f"{saved.dtype if torch.is_tensor(saved) else type(saved).__name__}", "bad_data")
    if saved.shape != weight.shape:
        raise Error(f"[optimizer] {where}: expected shape {list(weight.shape)}, got {list(saved.shape)}", "bad_data")


def take_master(weight, own, saved) -> None:
    """Masters that were saved, as `own`: i16 remainders or f32."""
    _check_master("master", weight, saved)
    if saved.dtype == torch.int16 and weight.dtype != torch.bfloat16:
        raise Error(f"[optimizer] master: expected one of {weight.dtype} weights, got what completes bfloat16 ones", "bad_data")
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
    if not torch.is_tensor(meta) or meta.shape != like.shape:
        raise Error(f"[optimizer] {key}_meta: expected shape {list(like.shape)}, got "
                    f"{list(meta.shape) if torch.is_tensor(meta) else type(meta).__name__}", "bad_data")
    return meta.to(like.dtype)


def address(tensor) -> int | None:
    """Of a tensor that may be absent."""
    return None if tensor is None else tensor.data_ptr()


def increment_version(tensors) -> None:
    """Tells autograd that these have changed: a backward pass that saved their old values then raises, as with torch's own."""
    increment = getattr(torch.autograd.graph, "increment_version", None)
    if increment is not None and tensors:
        increment(tensors)
