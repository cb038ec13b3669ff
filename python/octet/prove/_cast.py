"""prove.cast: a function from values to codes, against the format's definition (octet.formats.encode), to the bit."""

from __future__ import annotations

import numpy as np

from .. import _checks, formats
from .._error import Error
from ._choices import choices_of
from ._inputs import SOURCES, grid, hostile, values_of
from ._libraries import Refused, Wrong, called, check_where, codes_or_values, give
from ._result import Clock, Result, hexes
from ._shrink import simplest, smallest_part
from ._stochastic import check_stochastic_cast

__all__ = ["cast"]

OVERFLOWS = (None, "saturate", "nan", "inf")
LENGTHS = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 127, 129, 1023, 1025, 4099)


def cast(f, format: str, source: str = "f32", *, overflow: str | None = None, rounding: str = "near", like: str = "numpy",
         device: str = "cpu", layouts: bool = True, what: str | None = None) -> Result:
    """Holds a cast to its definition, bit for bit.

    f: takes an array of one dimension of `source` and gives codes of `format` (any type of their width), or their values as
        float32 or float64, in its shape.
    format: e4m3 e5m2 hif8 e8m0 bf16 fp16 int8.  rounding: near, what octet.formats.encode knows, or stochastic: of values between
        two neighbours those alone, with a bias within 5 standard errors, independently of the values beside them.
    source: bf16 or fp16, of which all 2^16 are cast, or f32: every boundary and tie of the format with neighbours, all of bf16
        and fp16, powers of two, subnormals, specials, and 2^17 random patterns.
    overflow: saturate, nan or inf; None: whichever documented one the stack follows, which `choices` of the result says.
    like: numpy or torch, what f takes; there on `device`.  layouts: views and lengths besides the whole array.
    A NaN equals any NaN. Where f raises at once, the result is skipped and not true: a refusal is not silent; where it raises later,
    `choices` of the result says so. Raises octet.Error for arguments and packages that are not installed.
    """
    _checks.function("prove", f=f)
    _checks.one_of("prove", "format", format, formats.formats())
    _checks.text("prove", rounding=rounding, **({} if what is None else {"what": what}))
    _checks.flag("prove", layouts=layouts)
    is_stochastic = rounding == "stochastic"
    _checks.one_of("prove", "overflow", overflow, OVERFLOWS, "saturate, nan, inf or None")
    known = {"saturate", *(choice.name for choice in choices_of("overflow", format))}
    if overflow is not None and overflow not in known:
        raise Error(f"[prove] overflow: expected None or {', '.join(sorted(known))} of {format}, got {overflow!r}")
    if is_stochastic and overflow is not None:
        raise Error(f"[prove] overflow: expected None with stochastic rounding, which does not look at it, got {overflow!r}")
    _checks.one_of("prove", "source", source, SOURCES)
    check_where(like, device)
    result = Result(what or f"{source} to {format}")
    with Clock(result):
        call = _Call(f, source, like, device, format)
        if is_stochastic:
            check_stochastic_cast(call.values, format, source, result)
            return result
        definition = _Definition(format, source, overflow, rounding)
        definition.choose(call(definition.bits), result)
        definition.compare(result, call)
        if layouts and result:
            _layouts(definition, result, call)
    return result


class _Call:
    """f on bit patterns; gives values with one NaN, as f32 words."""

    def __init__(self, f, source, like, device, format):
        self._f, self._where, self._format = f, (source, like, device), format

    def __call__(self, bits: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            array, is_codes = codes_or_values(called(self._f, give(bits, *self._where)), self._format)
        if array.shape != bits.shape:
            raise Wrong(f"[prove] expected a result of shape {bits.shape}, got {array.shape}")
        return canonical(formats.decode(array, self._format) if is_codes else array)

    def values(self, values: np.ndarray) -> np.ndarray:
        """Of f32 values that the source holds, as f32."""
        return self(_bits(values, self._where[0])).view(np.float32)


def _bits(values: np.ndarray, source: str) -> np.ndarray:
    return values.view(np.uint32) if source == "f32" else formats.encode(values, source)


def canonical(values: np.ndarray) -> np.ndarray:
    """f32 words with one NaN."""
    return np.where(np.isnan(values), np.uint32(0x7FC00000), np.ascontiguousarray(values).view(np.uint32))


def nearest_power(values: np.ndarray) -> np.ndarray:
    """E8M0 of magnitudes, ties up: the lower or the upper of the two powers beside each."""
    lower, upper = (formats.decode(formats.encode(values, "e8m0", way), "e8m0").astype(np.float64) for way in ("floor", "ceil"))
    with np.errstate(invalid="ignore"):
        return np.where(2 * np.abs(values.astype(np.float64)) >= lower + upper, upper, lower).astype(np.float32)


class _Definition:
    """Inputs of a source, what the format makes of them, and the kinds of which a stack may choose."""

    def __init__(self, format, source, overflow, rounding):
        self.format, self.source, self.overflow = format, source, overflow
        self.bits = hostile(format, source)
        self.values = values_of(self.bits, source)
        self.saturated = self._encoded(rounding, True)
        self.open = self._encoded(rounding, False)
        self.expected = canonical(self.saturated)
        self._chosen: dict[str, str] = {}
        self.kinds = self._kinds(rounding)

    def _encoded(self, rounding, saturate):
        if self.format == "e8m0" and rounding == "near":
            return nearest_power(self.values)
        return formats.decode(formats.encode(self.values, self.format, rounding, saturate=saturate), self.format)

    def _kinds(self, rounding) -> dict[str, np.ndarray]:
        v = self.values
        kinds = {"nan": np.isnan(v), "inf": np.isinf(v), "zero": v == 0,
                 "overflow": np.isfinite(v) & ~np.isfinite(self.open) & (v != 0)}
        if self.format == "e8m0":
            points = grid("e8m0")
            with np.errstate(invalid="ignore"):
                kinds["overflow"] = np.isfinite(v) & (v >= points[-2] * 1.5)
                kinds["tie"] = np.isin(v, (points[:-2] + points[1:-1]) / 2)
                kinds["negative"] = np.isfinite(v) & (v < 0)  # after the two that it may follow
        elif self.format == "int8":
            kinds["overflow"] = np.isfinite(v) & (np.abs(v) > 127.5)
        return kinds

    def choose(self, got: np.ndarray, result: Result) -> None:
        """Takes of each kind the documented choice that all inputs of the kind follow; else the one that most of them do."""
        for kind, mask in self.kinds.items():
            given = [c for c in choices_of(kind, self.format) if kind != "overflow" or self.overflow in (None, c.name)]
            if not given or not mask.any():
                continue
            made = {c: self._made(kind, c.name, mask) for c in given}
            best = max(given, key=lambda c: np.count_nonzero(made[c] == got[mask]))
            self.expected[mask] = made[best]
            self._chosen[kind] = best.name
            if len(given) > 1 or kind == "overflow":
                result.chose(f"{best}" if (made[best] == got[mask]).all() else f"{kind}: no documented choice, nearest is {best.name}")

    def _made(self, kind, name, mask) -> np.ndarray:
        v = self.values[mask]
        if name == "nan":
            made = np.full(v.shape, np.nan, np.float32)
        elif name == "inf":
            made = np.copysign(np.float32(np.inf), v)
        elif name == "saturate":
            made = np.copysign(np.float32(grid(self.format)[-2]), v)
        elif name in ("zero", "smallest"):
            made = np.full(v.shape, formats.decode(np.uint8([0]), self.format)[0], np.float32)
        elif name in ("even", "up", "magnitude"):
            made = self._power(np.abs(v), name if kind == "tie" else self._chosen["tie"])
        else:  # kept
            made = self.saturated[mask]
        return canonical(made.astype(np.float32))

    def _power(self, v, tie: str) -> np.ndarray:
        """E8M0 of magnitudes with the chosen ties and overflow."""
        made, half = nearest_power(v), v / np.float32(1.5)
        lower = formats.encode(half, "e8m0", "floor")
        is_tie = formats.decode(lower, "e8m0") == half
        if tie == "even":
            made = np.where(is_tie, formats.decode(lower + (lower & 1), "e8m0"), made)
        is_over = v >= grid("e8m0")[-2] * 1.5
        return np.where(is_over & (self._chosen.get("overflow") == "nan"), np.float32(np.nan), made)

    def kind_of(self, i: int) -> str:
        return next((kind for kind, mask in self.kinds.items() if mask[i]), "finite")

    def compare(self, result: Result, call, indices=None, case: str = "") -> None:
        """Of the inputs at `indices`, all of them by default."""
        indices = np.arange(len(self.bits)) if indices is None else indices
        got = call(self.bits[indices])
        is_equal = got == self.expected[indices]
        result.count(is_equal)
        if is_equal.all():
            return
        wrong = indices[~is_equal]
        i = simplest(self.values, wrong)
        alone = self._again(call, np.array([i]), got[indices == i])
        if alone[0] != self.expected[i]:
            self._tell(result, f"{case or self.kind_of(i)}", self.bits[[i]], self.values[i], self.expected[i], alone[0])
            return
        part = indices[smallest_part(len(indices), lambda kept: self._differs(call, indices[kept]))]
        got = self._again(call, part, got[np.isin(indices, part)])
        at = np.flatnonzero(got != self.expected[part])
        where = int(at[0]) if len(at) > 0 else 0
        case = f"{case}: " if case else ""
        self._tell(result, f"{case}element {where} of {len(part)}, right when alone" if len(at) > 0 else f"{case}comes and goes",
                   self.bits[part], self.values[part[where]], self.expected[part[where]], got[where])

    def _differs(self, call, indices) -> bool:
        expected = self.expected[indices]
        return bool((self._again(call, indices, expected) != expected).any())

    def _again(self, call, indices, refused) -> np.ndarray:
        """What the stack gives for fewer inputs; `refused` where it raises on them."""
        try:
            return call(self.bits[indices])
        except Refused:
            return refused

    def _tell(self, result, case, bits, value, expected, got) -> None:
        def shown(word):
            number = float(np.uint32(word).view(np.float32))
            exact = formats.encode(np.float32([number]), self.format, "floor" if self.format == "e8m0" else "near", saturate=False)
            return f"{number:.9g} ({hexes(exact)})"
        result.differ(case, f"{hexes(bits)} = {float(value):.9g}", shown(expected), shown(got))


def _layouts(definition: _Definition, result: Result, call: _Call) -> None:
    """Every second element, from an odd address, backwards in chunks, and short lengths: tails of vector loops."""
    rng = np.random.default_rng(11)
    n = len(definition.bits)
    order = rng.permutation(n)[: 1 << 14]
    doubled = np.repeat(definition.bits[order], 2)
    doubled[1::2] ^= doubled.dtype.type(1)
    for case, view, indices in (("every second element", doubled[::2], order), ("from element 1 on", definition.bits[1:], np.arange(1, n)),
                                ("from element 3 on", definition.bits[3:], np.arange(3, n))):
        try:
            got = call(view)
        except Refused as refused:
            result.chose(f"not taken: {case}: {refused}")
            continue
        is_equal = got == definition.expected[indices]
        result.count(is_equal)
        if not is_equal.all():
            at = int(np.flatnonzero(~is_equal)[0])
            result.differ(case, hexes(view[at : at + 1]), hexes(definition.expected[indices][at : at + 1]), hexes(got[at : at + 1]))
    for length in LENGTHS:
        try:
            definition.compare(result, call, np.sort(rng.choice(n, length, replace=False)), f"length {length}")
        except Refused as refused:
            result.chose(f"not taken: length {length}: {refused}")
