"""Arrays as a stack's library has them, and what it gives back as NumPy's."""

from __future__ import annotations

import numpy as np

from .. import _checks, _native
from .._arrays import is_torch
from .._error import Error

__all__ = ["Refused", "Wrong", "called", "codes_or_values", "give", "on_device", "read"]

_NAMES = {"f32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class Refused(Exception):
    """A stack raised on an input. One line."""


class Wrong(Exception):
    """A stack gave something else than was asked. One line."""


def called(f, *arguments):
    try:
        return f(*arguments)
    except Exception as error:  # noqa: BLE001: a stack's own
        raise Refused(" ".join(f"{type(error).__name__}: {error}".split())[:160]) from error


def check_where(like: str, device: str):
    """octet.Error for a library that is none or not installed, and for a device that is not there."""
    _checks.one_of("prove", "like", like, ("numpy", "torch"), "numpy or torch")
    _checks.text("prove", device=device)
    if like == "numpy" and device != "cpu":
        raise Error(f"[prove] device: expected cpu with like 'numpy', got {device!r}")
    if like == "torch":
        _check_device(device)


def _check_device(device: str):
    try:
        import torch
    except ImportError:
        raise Error("[prove] expected the package torch, it is not installed", "device") from None
    try:
        wanted = torch.device(device)
    except RuntimeError:
        wanted = None
    if wanted is None or wanted.type not in ("cpu", "cuda"):
        raise Error(f"[prove] device: expected cpu, cuda or cuda:N, got {device!r}")
    n_there = torch.cuda.device_count() if wanted.type == "cuda" else 1
    if (wanted.index or 0) >= n_there:
        raise Error(f"[prove] device: expected one of the {n_there} CUDA devices that PyTorch has, got {device!r}", "device")


def give(bits: np.ndarray, source: str, like: str = "numpy", device: str = "cpu"):
    """Bit patterns as values of a source, contiguous or strided as the bits are.

    like: numpy (bfloat16 is ml_dtypes') or torch, there on `device`. Strides stay.
    """
    if like == "numpy":
        if source == "bf16":
            try:
                import ml_dtypes
            except ImportError:
                raise Error("[prove] expected the package ml_dtypes for bf16 in NumPy, it is not installed") from None
            return bits.view(ml_dtypes.bfloat16)
        return bits.view(_NAMES[source])
    import torch
    signed = torch.from_numpy(bits.view({2: np.int16, 4: np.int32}[bits.itemsize]))
    if device != "cpu":
        signed = on_device(signed, device)
    return signed.view(getattr(torch, _NAMES[source]))


def on_device(tensor, device: str):
    """A copy there with the tensor's strides, as far from an address that is a multiple of 16 as the tensor is here."""
    import torch
    begin = tensor.data_ptr() % 16 // tensor.element_size()
    span = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) + 1 if tensor.numel() > 0 else 0
    memory = torch.empty(begin + span, dtype=tensor.dtype, device=device)
    return memory.as_strided(tensor.shape, tensor.stride(), begin).copy_(tensor)


def read(y) -> np.ndarray:
    """An array of any library in NumPy: float32 and float64 as they are, types that NumPy lacks as words of their width."""
    if is_torch(y):
        import torch
        y = y.detach().cpu()
        if y.dtype not in (torch.float32, torch.float64, torch.float16) and y.dtype.is_floating_point:
            y = y.contiguous().view({1: torch.uint8, 2: torch.int16}[y.element_size()])
        y = y.numpy()
        return y.view(np.uint16) if y.dtype == np.int16 else y
    y = np.asarray(y)
    if y.dtype.hasobject or y.dtype.kind in "cSUmM":
        raise Wrong(f"[prove] expected an array of numbers, got {y.dtype} {y.shape}")
    return y if y.dtype.kind in "fiu" and y.dtype.name in np.sctypeDict else np.ascontiguousarray(y).view(f"u{y.dtype.itemsize}")


def codes_or_values(y, format: str) -> tuple[np.ndarray, bool]:
    """What a cast gave: codes of the format (True), or values in f32 (False)."""
    array = read(y)
    if array.dtype in (np.float32, np.float64):
        return array.astype(np.float32), False
    width = _native.format_bytes(format)
    if array.itemsize != width:
        raise Wrong(f"[prove] expected codes of {format}, {width} bytes each, or float32 values, got {array.dtype}")
    array = np.ascontiguousarray(array)
    return array.view(f"u{width}"), True

