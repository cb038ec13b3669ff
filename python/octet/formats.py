"""The number formats: values to quantized data and back, bit for bit as `octet formats` does it.

Formats: e4m3 e5m2 hif8 e8m0 de8s de8u bf16 fp16 int8. Arrays are NumPy's, with the types of ml_dtypes (bfloat16,
float8_e4m3fn, float8_e5m2), PyTorch's, or any other that exports DLPack, in the CPU's memory or on a CUDA device. Contiguous
memory is read and written where it lies; what is not contiguous is gathered first. A result is of the kind of its input: a PyTorch
tensor for one of PyTorch, on its device; an array of their library for others on a device; else a NumPy array.

On a CUDA device all arrays of a call lie there. Kernels of the CUDA module run on PyTorch's current stream, nothing waits for
them, and the bits are the CPU's but for math="fast". Sources of the formats and the exact rules: docs/numerics.md.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass

from . import _native
from ._arrays import FLOAT8, is_on_cuda, is_torch
from ._error import Error
from ._host_formats import HostFormats

__all__ = ["Quantized", "decode", "dequantize", "encode", "formats", "quantize"]

_SOURCES = {"float32": "f32", "bfloat16": "bf16", "float16": "fp16"}
# Types that say which format their elements have.
_STORED = {**FLOAT8, "bfloat16": "bf16", "float16": "fp16", "int8": "int8"}


def formats() -> dict[str, dict]:
    """Every format by its name: bits, max_finite, min_normal, min_positive, inf, amax_target, roundings."""
    return {row["format"]: row for row in _native.format_facts()}


def encode(x, format: str, rounding: str = "near", *, saturate: bool = True, nan_to_zero: bool = False, bits=None,
           seed: int = 0, out=None):
    """The codes of x, each rounded once.

    x: values of any shape, float32, bfloat16 or float16 (others of NumPy's are converted to float32 first).
    rounding: near, the format's own nearest (ties to even; HiF8: ties away from zero), or rne ta rtz sr hr hrv floor
        ceil, where the format defines it.
    saturate: what overflows becomes the largest finite value, not Inf or NaN.
    bits: uint32, one word a value, for sr (and hr); without them those of `seed`.
    out: an array of the codes' width and x's shape that is written in place of a new one, uint8 or float8_*; its memory is its own.
    Returns uint8, or uint16 for bf16 and fp16, in x's shape. Raises octet.Error.
    """
    _expect_texts(format=format, rounding=rounding)
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or not 0 <= seed < 2**32:
        raise Error(f"[formats] seed: expected an integer in [0, 2^32), got {seed!r}")
    _expect_flags(saturate=saturate, nan_to_zero=nan_to_zero)
    place = _place_of(x)
    values, source = _values(place, x)
    codes = _codes_for(place, values.shape, format, out)
    words = None
    if bits is not None:
        if rounding not in ("sr", "hr"):
            raise Error(f"[formats] bits: expected them with a rounding that draws (sr, hr), got {rounding}")
        words = place.words(bits)
        if place.size(words) != place.size(values):
            raise Error(f"[formats] expected {place.size(values)} random words, one a value, got {place.size(words)}", "bad_data")
    _expect_apart(place, out, codes, values, words)
    place.encode(_native.EncodeCall(format, rounding, source, bool(saturate), bool(nan_to_zero), int(seed)), values, codes, words)
    return out if out is not None else place.give(x, codes)


def decode(codes, format: str | None = None, *, out=None):
    """The values of codes as float32, in their shape; exact.

    codes: uint8 or int8 (uint16 or int16 for bf16 and fp16), or an array whose type is the format: float8_e4m3fn,
        float8_e5m2, bfloat16, float16; then `format` may be left out.
    out: a float32 array of the same shape that is written in place of a new one. Raises octet.Error.
    """
    place = _place_of(codes)
    array = place.read(codes)
    name = place.name(array)
    format = format or _STORED.get(name)
    if format is None:
        raise Error(f"[formats] expected a format's name, since {name} does not say one, got none")
    _expect_texts(format=format)
    _expect_codes(place, array, format)
    values = place.empty(array.shape, "float32") if out is None else place.wants(out, array.shape, "float32")
    _expect_apart(place, out, values, array)
    place.decode(format, array, values)
    return out if out is not None else place.give(codes, values)


@dataclass
class Quantized:
    """Quantized data with what gives its values back; unpacks to (codes, scale), or (codes, meta) with expansion.

    codes: uint8 in the shape of x.
    scale: float32, the grid [rows, cols] of scales (of 1xG groups the values are BF16's), x ~ codes * scale; None with
        expansion.
    meta: uint32 [groups], amax and exponent of each group of a range expansion; None without.
    nonfinite: whether x held NaN or Inf; of an array on a CUDA device a tensor there, which waits for it when it is read.
    """

    codes: object
    scale: object
    meta: object
    format: str
    granularity: str = "tensor"
    moment: str = "m"
    math: str = "exact"
    nonfinite: object = False

    def __iter__(self):
        return iter((self.codes, self.scale if self.meta is None else self.meta))


def quantize(x, format: str = "e4m3", granularity: str = "tensor", *, expand: bool = False, moment: str = "m",
             math: str = "exact") -> Quantized:
    """x in 8 bits with scales from its own maxima; or, with `expand`, with COAT's dynamic range expansion.

    x: float32 [..., cols] (bfloat16 and float16 are widened, which is exact); all dimensions but the last are rows.
    granularity: tensor, row, 1xG or BxB; groups of an expansion run on through the tensor.
    moment: m or v, whose range the expansion aims at.  math: exact or fast powers.
    NaN and Inf do not count in a maximum and set `nonfinite` of the result. Raises octet.Error.
    Source: Xi et al., COAT, ICLR 2025.
    """
    place = _place_of(x)
    values = _as_f32(place, x)
    _expect_flags(expand=expand)
    call = _call(values.shape, format, granularity, moment, math)
    _expect_of_expansion(expand, moment, math)
    codes = place.empty(values.shape, "uint8")
    scale = meta = None
    if expand:
        meta = place.empty((_native.group_count(call),), "uint32")
        nonfinite = place.expand(call, values, codes, meta)
    else:
        scale = place.empty(_native.scale_grid(call), "float32")
        nonfinite = place.quantize(call, values, codes, scale)
    as_given = [None if array is None else place.give(x, array) for array in (codes, scale, meta)]
    return Quantized(*as_given, format, granularity, moment, math, nonfinite)


def dequantize(q, scale=None, *, meta=None, format: str | None = None, granularity: str | None = None, moment: str | None = None,
               math: str | None = None, out=None):
    """The values of what quantize() gave, as float32: codes * scale, rounded once, or the inverse of the expansion.

    q: a Quantized, which says how; or codes, with `scale` or `meta` and the same choices as quantize() took, of which there are the same
       where None is given.
    out: a float32 array of the codes' shape that is written in place of a new one. Raises octet.Error.
    """
    texts = {"format": format, "granularity": granularity, "moment": moment, "math": math}
    _expect_texts(**{name: value for name, value in texts.items() if value is not None})
    if not isinstance(q, Quantized):
        how = {name: _USUAL[name] if value is None else value for name, value in texts.items()}
        if (scale is None) == (meta is None):
            raise Error("[formats] expected codes with scale or with meta, got "
                        + ("neither" if scale is None else "both"))
        _expect_of_expansion(meta is not None, how["moment"], how["math"])
        q = Quantized(q, scale, meta, **how)
    else:
        for name, value in (("scale", scale), ("meta", meta)):
            if value is not None:
                raise Error(f"[formats] {name}: expected none beside a Quantized, which has its own, got {type(value).__name__}")
        for name, value in texts.items():
            if value not in (None, getattr(q, name)):
                raise Error(f"[formats] {name}: expected {getattr(q, name)}, as the Quantized says, or none, got {value}")
    place = _place_of(q.codes)
    codes = place.read(q.codes)
    call = _call(codes.shape, q.format, q.granularity, q.moment, q.math)
    _expect_codes(place, codes, q.format)
    values = place.empty(codes.shape, "float32") if out is None else place.wants(out, codes.shape, "float32")
    of_groups = _as_f32(place, q.scale) if q.meta is None else place.metadata(q.meta)
    _expect_apart(place, out, values, codes, of_groups)
    if q.meta is not None:
        place.contract(call, codes, of_groups, values)
    else:
        place.dequantize(call, codes, of_groups, values)
    return out if out is not None else place.give(q.codes, values)


_HOST = HostFormats()
_USUAL = {"format": "e4m3", "granularity": "tensor", "moment": "m", "math": "exact"}


def _expect_apart(place, out, written, *read) -> None:
    """What is written may not lie on what is read, unless element on element."""
    if out is None:
        return
    begin, end = place.span(written)
    for array in read:
        if array is None:
            continue
        first, last = place.span(array)
        is_same = (first, last) == (begin, end) and place.size(array) == place.size(written)
        if first < end and begin < last and not is_same:
            raise Error("[formats] out: expected memory of its own, got some of what is read")


def _expect_flags(**given) -> None:
    for name, value in given.items():
        if type(value).__name__ not in ("bool", "bool_"):  # of NumPy, too
            raise Error(f"[formats] {name}: expected True or False, got {value!r}")


def _expect_of_expansion(expands, moment, math) -> None:
    if math not in ("exact", "fast"):
        raise Error(f"[formats] expected math exact or fast, got {math}")
    for name, value in (("moment", moment), ("math", math)):
        if not expands and value != _USUAL[name]:
            raise Error(f"[formats] {name}: expected it with an expansion alone, got {value}")


def _place_of(x):
    """Where x lies, and with it a call's other arrays."""
    if not is_on_cuda(x):
        return _HOST
    from ._device_formats import DeviceFormats
    return DeviceFormats(x)


def _values(place, x):
    array = place.read(x)
    if place.name(array) not in _SOURCES:
        if not place.is_real(array) or is_torch(x):
            raise Error(f"[formats] expected values of float32, bfloat16 or float16, got {place.name(array)}")
        array = place.as_f32(array)
    return array, _SOURCES[place.name(array)]


def _as_f32(place, x):
    return place.as_f32(_values(place, x)[0])


def _codes_for(place, shape, format, out):
    if out is None:
        return place.empty(shape, "uint8" if _native.format_bytes(format) == 1 else "uint16")
    array = place.wants(out, shape)
    _expect_codes(place, array, format, "[formats] out: ")
    return array


def _expect_codes(place, array, format, what="[formats] "):
    """Integers of the format's width, or the type that is the format. Types of other formats (float8_e4m3fnuz, say) have the
    width but not the values."""
    width, name = _native.format_bytes(format), place.name(array)
    if place.itemsize(array) != width or not (place.is_integer(array) or _STORED.get(name) == format):
        raise Error(f"{what}expected codes of {format}, {width} bytes each, got {name}")


def _expect_texts(**given) -> None:
    for name, value in given.items():
        if not isinstance(value, str):
            raise Error(f"[formats] {name}: expected a text, got {type(value).__name__}")


def _call(shape, format, granularity, moment, math):
    _expect_texts(format=format, granularity=granularity, moment=moment, math=math)
    if moment not in ("m", "v"):
        raise Error(f"[formats] expected moment m or v, got {moment}")
    cols = shape[-1] if shape else 1
    rows = 1
    for size in shape[:-1]:
        rows *= size
    return _native.QuantizeCall(format, granularity, rows, cols, moment, math)
