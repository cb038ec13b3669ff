"""Arrays of other libraries as NumPy's, where they lie."""

from __future__ import annotations

import sys

import numpy as np

from ._error import Error

# PyTorch's types that NumPy itself has no name for, by the integers of their width; their names are those of ml_dtypes.
_TORCH_BITS = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "float8_e8m0fnu": "uint8",
               "uint16": "int16", "uint32": "int32"}

# Types that are one of our formats; others of the width (float8_e4m3fnuz, say) have other values.
FLOAT8 = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float8_e8m0fnu": "e8m0"}

# Kinds of devices by DLPack's numbers: the CPU, and memory of CUDA and ROCm that the CPU reads.
_ON_CPU = (1, 3, 11, 13)
_ON_CUDA = (2,)
_DEVICES = {2: "cuda", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}
_WAY = {True: "x.cpu() copies it", False: "x.to_dense() is one"}


def is_torch(x) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_on_cuda(x) -> bool:
    """Whether x is an array in the memory of a CUDA device."""
    if is_torch(x):
        return x.device.type == "cuda"
    return hasattr(x, "__dlpack_device__") and not isinstance(x, np.ndarray) and x.__dlpack_device__()[0] in _ON_CUDA


def adopt(x) -> np.ndarray:
    """x as a NumPy array that shares its memory. bfloat16 and float8 get ml_dtypes' types."""
    if isinstance(x, np.ma.MaskedArray):
        raise Error("[arrays] expected an array without a mask, got a masked one: x.filled(value) and x.data are such")
    if isinstance(x, np.ndarray):
        return np.asarray(x)  # of NumPy's own class: others have views and shapes of their own
    if is_torch(x):
        return _from_torch(x)
    if hasattr(x, "__dlpack__"):
        kind, number = x.__dlpack_device__()
        if kind not in _ON_CPU:
            raise Error(f"[arrays] expected an array in the CPU's memory, got one on {_DEVICES.get(int(kind), 'device')}:{number}: "
                        "copy it to the CPU first", "device")
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            if hasattr(x, "__array__"):
                return np.asarray(x)
            raise Error(f"[arrays] expected an array in the CPU's memory, got one that NumPy does not take: "
                        f"{_one_line(error)}") from None
    try:
        return np.asarray(x)
    except (TypeError, ValueError) as error:
        raise Error(f"[arrays] expected an array, got {type(x).__name__}: {_one_line(error)}") from None


def _from_torch(x) -> np.ndarray:
    torch = sys.modules["torch"]
    if x.device.type != "cpu" or x.layout != torch.strided:
        where = x.device if x.layout == torch.strided else x.layout
        raise Error(f"[arrays] expected a dense tensor on the CPU, got one on {where}: {_WAY[x.layout == torch.strided]}", "device")
    x = x.detach()
    if x.numel() > 0 and x.untyped_storage().nbytes() == 0:
        raise Error("[arrays] expected a tensor with memory, got one whose storage is freed")
    name = str(x.dtype).removeprefix("torch.")
    try:
        if name not in _TORCH_BITS:
            return x.numpy()
        return x.view(getattr(torch, _TORCH_BITS[name])).numpy().view(_dtype(name))
    except (RuntimeError, TypeError) as error:
        if isinstance(error, Error):
            raise
        raise Error(f"[arrays] expected a tensor of a type that NumPy has, got {name}: {_one_line(error)}") from None


def _dtype(name: str) -> np.dtype:
    if name in ("uint16", "uint32"):
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise Error(f"[arrays] expected the package ml_dtypes for {name}, it is not installed") from None
    return np.dtype(getattr(ml_dtypes, name))


def contiguous(array: np.ndarray) -> np.ndarray:
    """The array itself, or gathered where its elements do not follow one another; little-endian."""
    array = array if array.flags.c_contiguous else np.array(array, order="C")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def bytes_of(array: np.ndarray) -> np.ndarray:
    """A contiguous array as uint8, where it lies."""
    return array.reshape(-1).view(np.uint8)


def wants(out, shape, name: str | None = None) -> np.ndarray:
    """`out` as an array that can be written in place; octet.Error where it is another one."""
    array = adopt(out)
    what = f"[arrays] out: expected a contiguous writable array {name or ''} {list(shape)}"
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise Error(f"{what}, got one that is {'read-only' if array.flags.c_contiguous else 'not contiguous'}")
    if array.shape != tuple(shape) or (name is not None and array.dtype.name != name):
        raise Error(f"{what}, got {array.dtype.name} {list(array.shape)}")
    return array


def result_like(x, array: np.ndarray):
    """A new array as x's library has it: a PyTorch tensor for one of PyTorch."""
    if not is_torch(x):
        return array
    torch = sys.modules["torch"]
    wide = {"uint16": "int16", "uint32": "int32"}.get(array.dtype.name)
    if wide is None:
        return torch.from_numpy(array)
    tensor = torch.from_numpy(array.view(wide))
    own = getattr(torch, array.dtype.name, None)
    return tensor if own is None else tensor.view(own)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
