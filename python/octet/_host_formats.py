"""What octet.formats does with arrays in the CPU's memory: NumPy's, where they lie."""

from __future__ import annotations

import numpy as np

from . import _native
from ._arrays import adopt, bytes_of, contiguous, result_like, wants
from ._error import Error


class HostFormats:
    """Arrays and kernels of the CPU. DeviceFormats has the same for CUDA devices."""

    def read(self, x):
        """x as a contiguous array of this place; itself where it is one."""
        return contiguous(adopt(x))

    def name(self, array) -> str:
        return array.dtype.name

    def itemsize(self, array) -> int:
        return array.dtype.itemsize

    def size(self, array) -> int:
        return array.size

    def is_integer(self, array) -> bool:
        return array.dtype.kind in "iu"

    def is_real(self, array) -> bool:
        return np.issubdtype(array.dtype, np.number) and not np.issubdtype(array.dtype, np.complexfloating)

    def as_f32(self, array):
        """As aligned float32."""
        return array if array.dtype == np.float32 and array.flags.aligned else array.astype(np.float32)

    def words(self, x):
        """Random words as uint32."""
        words = self._integers(x, "random words")
        if words.itemsize != 4 and words.size > 0 and not 0 <= words.min() <= words.max() < 2**32:
            raise Error(f"[formats] expected random words from 0 to 2^32 - 1, got {words.min()} to {words.max()}", "bad_data")
        return words.astype(np.uint32, copy=False)

    def metadata(self, x):
        words = self._integers(x, "metadata")
        if words.itemsize != 4:
            raise Error(f"[formats] expected metadata of uint32 or int32, got {words.dtype.name}", "bad_data")
        return words.view(np.uint32)

    def _integers(self, x, what: str):
        words = contiguous(adopt(x))
        if not self.is_integer(words):
            raise Error(f"[formats] expected {what} of uint32 or int32, got {words.dtype.name}", "bad_data")
        return words

    def empty(self, shape, name: str):
        return np.empty(shape, name)

    def wants(self, out, shape, name: str | None = None):
        """`out` as an array that can be written in place; octet.Error where it is another one."""
        return wants(out, shape, name)

    def span(self, array) -> tuple[int, int]:
        """Where the memory of a contiguous array begins and ends."""
        return array.ctypes.data, array.ctypes.data + array.nbytes

    def give(self, x, array):
        """A new array as x's library has it."""
        return result_like(x, array)

    def encode(self, call, values, codes, words) -> None:
        _native.encode(call, bytes_of(values), bytes_of(codes), words)

    def decode(self, format: str, codes, values) -> None:
        _native.decode(format, bytes_of(codes), bytes_of(values))

    def quantize(self, call, x, codes, scale) -> bool:
        return _native.quantize(call, bytes_of(x), bytes_of(codes), bytes_of(scale))

    def expand(self, call, x, codes, meta) -> bool:
        return _native.expand(call, bytes_of(x), bytes_of(codes), meta)

    def dequantize(self, call, codes, scale, x) -> None:
        _native.dequantize(call, bytes_of(codes), bytes_of(scale), bytes_of(x))

    def contract(self, call, codes, meta, x) -> None:
        _native.contract(call, bytes_of(codes), meta, bytes_of(x))
