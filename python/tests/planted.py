"""Faults of the kind that stacks had in 2026, as small functions of our own, and healthy functions beside them. NumPy alone."""

import numpy as np

from octet import formats
from octet.prove._sums import Sums, tensor_sums

TINY = np.float32(2.0**-100)


def own_e4m3(x):
    """E4M3 by arithmetic: round to a multiple of the step of the value's binade; saturates."""
    v = np.asarray(x, np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        exponent = np.clip(np.frexp(np.abs(v))[1] - 1, -6, 8)
        step = np.exp2(exponent - 3.0)
        return np.clip(np.rint(v / step) * step, -448, 448).astype(np.float32)


def through_bf16(x):
    """Fault: long arrays go through bf16, which rounds twice; what is left over behind whole vectors does not."""
    whole = len(x) // 64 * 64
    y = formats.encode(x, "e4m3")
    y[:whole] = formats.encode(formats.decode(formats.encode(x[:whole], "bf16"), "bf16"), "e4m3")
    return y


def tiled(x, size=32):
    return x.reshape(x.shape[0], -1, size)


def by_groups(x, size=32):
    """Healthy: amax / 448 in groups of 1 x size, bounded below."""
    amax = np.abs(tiled(x, size)).max(axis=2)
    scale = np.maximum(amax / np.float32(448), TINY)
    return formats.encode((tiled(x, size) / scale[:, :, None]).reshape(x.shape), "e4m3"), scale


def by_inverse_scales(x):
    """Healthy: gives 1 / (amax / 448), by which it multiplies."""
    scale = np.maximum(np.abs(tiled(x)).max(axis=2) / np.float32(448), TINY)
    inverse = np.float32(1) / scale
    with np.errstate(all="ignore"):
        return formats.encode((tiled(x) * inverse[:, :, None]).reshape(x.shape), "e4m3"), inverse


def without_bound(x):
    """Fault: scales of tiny groups underflow to 0, and their data are NaN."""
    with np.errstate(all="ignore"):
        scale = np.abs(tiled(x)).max(axis=2) / np.float32(448)
        scale = np.where(scale < np.finfo(np.float32).tiny, np.float32(0), scale)
        return formats.encode((tiled(x) / scale[:, :, None]).reshape(x.shape), "e4m3"), scale


def amax_in_fp16(x):
    """Fault: maxima beyond fp16's range become its infinity, and their groups NaN."""
    with np.errstate(all="ignore"):
        amax = np.abs(tiled(x)).max(axis=2)
        amax = np.where(amax > 65504, np.float32(np.inf), amax)
        scale = np.maximum(amax / np.float32(448), TINY)
        return formats.encode((tiled(x) / scale[:, :, None]).reshape(x.shape), "e4m3", saturate=False), scale


def as_memory_lies(x):
    """Fault: a transposed matrix is read in the order of its memory."""
    return by_groups(x if x.flags.c_contiguous else x.T.reshape(x.shape))


class Race:
    """Fault: now and then a group takes the scale of the one before it."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        codes, scale = by_groups(x)
        if self.calls % 7 == 0 and scale.shape[1] > 1:
            codes, scale = codes.copy(), scale.copy()
            scale[0, 1] = scale[0, 0]
            codes[0, 32:64] = formats.encode(x[0, 32:64] / scale[0, 1], "e4m3")
        return codes, scale


def by_e8m0(x, is_right=True):
    """MX with 2^ceil(log2(amax / 448)); the fault takes 1 as the inverse of the smallest scale, code 0."""
    ratio = np.abs(tiled(x)).max(axis=2).astype(np.float64) / 448
    mantissa, exponent = np.frexp(ratio)
    exponent = np.where(ratio > 0, exponent - (mantissa == 0.5), -127)
    codes = np.where(np.isnan(ratio), 255, np.clip(exponent, -127, 127) + 127).astype(np.uint8)
    inverse = np.exp2(127.0 - codes)
    if not is_right:
        inverse = np.where(codes == 0, 1.0, inverse)
    with np.errstate(all="ignore"):
        data = (tiled(x).astype(np.float64) * np.where(codes == 255, np.nan, inverse)[:, :, None]).astype(np.float32)
    return formats.encode(data.reshape(x.shape), "e4m3"), codes


class Stochastic:
    """Stochastic rounding of the data in one scale a tensor; `bits` of 32 random ones reach the place where they are added."""

    def __init__(self, bits=32, is_shared=False):
        self.rng, self.bits, self.is_shared = np.random.default_rng(1), bits, is_shared

    def __call__(self, x):
        amax = np.abs(x).max()
        scale = np.maximum(amax / np.float32(448), TINY)
        words = self.rng.integers(0, 2**32, x.size, dtype=np.uint32)
        if self.is_shared:
            words = np.repeat(words[::4], 4)[: x.size]
        words >>= np.uint32(32 - self.bits)
        with np.errstate(all="ignore"):
            codes = formats.encode(x / scale, "e4m3", "sr", bits=words.reshape(x.shape))
        return codes, np.float32([scale])


class StochasticCast:
    """E4M3 with random words of which `lost` low bits are set: right for 0; for 31 it rounds up half of the time, wherever it is."""

    def __init__(self, lost=0):
        self.rng, self.lost = np.random.default_rng(2), lost

    def __call__(self, x):
        words = self.rng.integers(0, 2**32, x.size, dtype=np.uint32)
        words |= np.uint32((1 << self.lost) - 1)
        return formats.encode(x, "e4m3", "sr", bits=words)


def product(a, b, scale_a, scale_b):
    """Healthy: f32 sums."""
    return formats.decode(a, "e4m3") @ formats.decode(b, "e4m3").T * scale_a * scale_b


def lost_columns(a, b, scale_a, scale_b):
    """Fault: every fourth column of the result is never written."""
    y = product(a, b, scale_a, scale_b)
    y[:, 3::4] = 0
    return y


def aligned_scales(a, b, scale_a, scale_b):
    """Fault: scales are read from the last address that is a multiple of 16."""
    is_off = [s.ctypes.data % 16 != 0 for s in (scale_a, scale_b)]
    return product(a, b, *(np.zeros_like(s) if off else s for s, off in zip((scale_a, scale_b), is_off)))


def without(rows, cols):
    """Fault: a card that leaves out a part of products whose sums have more than one term."""
    def f(a, b, scale_a, scale_b):
        y = card(128)(a, b, scale_a, scale_b)
        if np.count_nonzero(a, axis=1).max() > 1 and not np.isnan(y).any():
            y[rows, cols] = 0
        return y
    return f


def card(chain=0, split=1):
    """A card of capability 9.0, by the rule of its tensor cores."""
    def f(a, b, scale_a, scale_b):
        return tensor_sums(formats.decode(a, "e4m3"), formats.decode(b, "e4m3"), "e4m3", "e4m3", Sums(chain, split)) * scale_a * scale_b
    return f
