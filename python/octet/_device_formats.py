"""What octet.formats does with arrays on CUDA devices: they stay there, as tensors of PyTorch that share their memory.

Kernels are the CUDA module's. They are queued on PyTorch's current stream, nothing waits for them, and a CUDA graph may hold them.
"""

from __future__ import annotations

import sys

from . import _cuda_formats as _cuda
from . import _native
from ._arrays import is_torch
from ._error import Error

_SIGNED = {"uint16": "int16", "uint32": "int32"}  # in a PyTorch without these


def _torch_for(x):
    """PyTorch, which allocates results beside x."""
    try:
        import torch
    except ImportError:
        raise Error(f"[arrays] expected the package torch for a {type(x).__name__} on a CUDA device, it is not installed: copy it to "
                    "the CPU first", "device") from None
    return torch


class DeviceFormats:
    """Arrays and kernels of one CUDA device, as HostFormats has them."""

    def __init__(self, x):
        self._torch = _torch_for(x)
        self.device = self._adopt(x).device

    def read(self, x):
        """x as a contiguous tensor of this device; one that shares its memory where it lies so."""
        x = self._adopt(x)
        if x.device != self.device:
            raise Error(f"[arrays] expected arrays on {self.device}, as the first is, got one on {x.device}", "device")
        if x.numel() > 0 and x.data_ptr() % x.element_size() != 0:
            if not x.is_contiguous():
                raise Error("[arrays] expected elements aligned to their size or one after another, got neither")
            x = x.view(self._torch.uint8).clone().view(x.dtype)
        return x.contiguous()

    def _adopt(self, x):
        if not is_torch(x):
            x = self._imported(x)
        if x.layout != self._torch.strided:
            raise Error(f"[arrays] expected a dense tensor, got one on {x.device} of {x.layout}", "device")
        x = x.detach().resolve_neg()
        if x.numel() > 0 and x.untyped_storage().nbytes() == 0:
            raise Error("[arrays] expected a tensor with memory, got one whose storage is freed")
        return x

    def _imported(self, x):
        """An array of another library. DLPack makes PyTorch's current stream wait for what is queued on it."""
        if not hasattr(x, "__dlpack__"):
            raise Error(f"[arrays] expected an array on {getattr(self, 'device', 'a CUDA device')}, got {type(x).__name__}", "device")
        try:
            return self._torch.from_dlpack(x)
        except (AssertionError, BufferError, RuntimeError, TypeError, ValueError) as error:
            raise Error("[arrays] expected an array that PyTorch takes through DLPack, got: " + " ".join(str(error).split()),
                        "device") from None

    def name(self, tensor) -> str:
        return str(tensor.dtype).removeprefix("torch.")

    def itemsize(self, tensor) -> int:
        return tensor.element_size()

    def size(self, tensor) -> int:
        return tensor.numel()

    def is_integer(self, tensor) -> bool:
        return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == self._torch.bool)

    def is_real(self, tensor) -> bool:
        return self.is_integer(tensor) or tensor.dtype == self._torch.float64

    def as_f32(self, tensor):
        return tensor.to(self._torch.float32)

    def words(self, x):
        return self._of_32_bits(x, "random words")

    def metadata(self, x):
        return self._of_32_bits(x, "metadata")

    def _of_32_bits(self, x, what: str):
        x = self.read(x)
        if not self.is_integer(x) or x.element_size() != 4:
            raise Error(f"[formats] expected {what} of uint32 or int32, got {self.name(x)}", "bad_data")
        return x

    def empty(self, shape, name: str):
        dtype = getattr(self._torch, name, None) or getattr(self._torch, _SIGNED[name])
        return self._torch.empty(tuple(shape), dtype=dtype, device=self.device)

    def wants(self, out, shape, name: str | None = None):
        """`out` as a tensor that can be written in place; octet.Error where it is another one."""
        if is_torch(out) and out.is_neg():
            raise Error("[arrays] out: expected an array that can be written in place, got a view of negative numbers")
        tensor = self._adopt(out)
        what = f"[arrays] out: expected a contiguous array {name or ''} {list(shape)} on {self.device}"
        if tensor.device != self.device:
            raise Error(f"{what}, got one on {tensor.device}", "device")
        if not tensor.is_contiguous() or tensor.data_ptr() % tensor.element_size() != 0:
            raise Error(f"{what}, got one that is not {'aligned' if tensor.is_contiguous() else 'contiguous'}")
        if tensor.shape != tuple(shape) or (name is not None and self.name(tensor) != name):
            raise Error(f"{what}, got {self.name(tensor)} {list(tensor.shape)}")
        return tensor

    def span(self, tensor) -> tuple[int, int]:
        """Where the memory of a contiguous tensor begins and ends."""
        return tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()

    def give(self, x, tensor):
        """A new array as x's library has it: one that it imports through DLPack; PyTorch's own for PyTorch."""
        if is_torch(x):
            return tensor
        own = x.__array_namespace__() if hasattr(x, "__array_namespace__") else sys.modules[type(x).__module__.partition(".")[0]]
        return own.from_dlpack(tensor) if hasattr(own, "from_dlpack") else tensor

    def encode(self, call, values, codes, words) -> None:
        format, rounding, source, saturate, nan_to_zero, seed = _native.encode_numbers(call)
        _cuda.run("encode", _cuda.Encoding(_address(values), _address(codes), _address(words), values.numel(), self._index, seed,
                                           format, rounding, source, saturate, nan_to_zero), self._stream)

    def decode(self, format: str, codes, values) -> None:
        _cuda.run("decode", _cuda.Decoding(_address(codes), _address(values), codes.numel(), self._index,
                                           _native.format_number(format)), self._stream)

    def quantize(self, call, x, codes, scale):
        """Whether x holds NaN or Inf, as a tensor on the device."""
        flag = self._torch.empty((), dtype=self._torch.int32, device=self.device)
        self._tiles("quantize", _native.linear_tiles(call), x, codes, scale, nonfinite=flag)
        return flag.ne(0)

    def expand(self, call, x, codes, meta):
        """As quantize."""
        flag = self._torch.empty((), dtype=self._torch.int32, device=self.device)
        scratch = self._torch.empty(meta.numel(), dtype=self._torch.int32, device=self.device)
        self._tiles("expand", _native.expansion_tiles(call), x, codes, meta, scratch=scratch, nonfinite=flag)
        return flag.ne(0)

    def dequantize(self, call, codes, scale, x) -> None:
        self._tiles("dequantize", _native.linear_tiles(call), x, codes, scale)

    def contract(self, call, codes, meta, x) -> None:
        self._tiles("contract", _native.expansion_tiles(call), x, codes, meta)

    def _tiles(self, name: str, numbers, x, codes, of_tiles, scratch=None, nonfinite=None) -> None:
        *sizes, format, bf16_scales, second_moment, fast = numbers
        n_tiles = sizes[4] * sizes[5]
        if of_tiles.numel() != n_tiles:
            what = "metadata" if name in ("expand", "contract") else "scales"
            raise Error(f"[formats] {codes.numel()} codes want {n_tiles} {what}, got {of_tiles.numel()}")
        _cuda.run(name, _cuda.Tiles(*sizes, _address(x), _address(codes), _address(of_tiles), _address(scratch), _address(nonfinite),
                                    self._index, format, bf16_scales, second_moment, fast), self._stream)

    @property
    def _index(self) -> int:
        return self.device.index or 0

    @property
    def _stream(self) -> int:
        return self._torch.cuda.current_stream(self.device).cuda_stream


def _address(tensor) -> int | None:
    return None if tensor is None or tensor.numel() == 0 else tensor.data_ptr()
