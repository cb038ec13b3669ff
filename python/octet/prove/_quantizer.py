"""prove.quantizer: data and scales of a quantizer against the rules that stacks document, and invariants where none is documented."""

from __future__ import annotations

import numpy as np

from .. import _checks, formats
from .._error import Error
from ._choices import choices_of
from ._groups import DATA_RULES, SCALE_RULES, Groups, encoded
from ._inputs import SOURCES, grid
from ._layouts import check_layouts
from ._libraries import Refused, Wrong, called, check_where, give, read
from ._matrices import edge_matrices, regular_matrices, shapes
from ._result import Clock, Result, hexes
from ._shrink import smallest_part
from ._stochastic import check_stochastic

__all__ = ["quantizer"]

SMALLEST = np.float32(2.0**-127)
FORMATS = ("e4m3", "e5m2", "hif8", "int8")


def quantizer(f, format: str = "e4m3", granularity: str = "tensor", scale: str = "amax", *, rounding: str = "near",
              source: str = "f32", like: str = "numpy", device: str = "cpu", inverse: bool = False, multiple: int = 1,
              target: float | None = None, seconds: float | None = None, what: str | None = None) -> Result:
    """Holds a quantizer to its definition: x ~ codes * scale, a scale for each group.

    f: takes a matrix [rows, cols] of `source` and gives (codes, scale): codes of `format` in x's shape, and scales of the groups
        in row-major order, of any shape: f32, bf16, or E8M0 as float8_e8m0fnu or uint8.
    format: e4m3 e5m2 hif8 int8.  granularity: tensor, row, 1xG or BxB.
    scale: amax, power_of_two or e8m0. Of each kind _groups.py has the rules that are in use; the stack must follow one of them,
        and one arithmetic of the data, in all groups, to the bit. Groups at an end of the range (EDGES of _matrices.py) need
        finite values within half a step instead; NaN and infinity must not reach other groups.
    rounding: near or stochastic: neighbours alone, bias within 5 standard errors, neighbours independent.
    source, like, device: what f takes, as in cast().  inverse: f's scale multiplies x.  multiple: of sizes that f needs.
    target: what amax becomes, by default 448, 57344, 15 or 127.  seconds: no new matrix after them.
    Where f raises, those matrices are left out, and `choices` of the result says so; where it takes none, the result is skipped and not
    true. Raises octet.Error for arguments and packages that are not installed.
    """
    _checks.function("prove", f=f)
    for name, value, known in (("source", source, SOURCES), ("format", format, FORMATS), ("scale", scale, SCALE_RULES),
                               ("rounding", rounding, ("near", "stochastic"))):
        _checks.one_of("prove", name, value, known)
    _checks.flag("prove", inverse=inverse)
    if target is not None:
        _checks.number("prove", "target", target, 2.0**-126)
    if seconds is not None:
        _checks.number("prove", "seconds", seconds, 0)
    if what is not None:
        _checks.text("prove", what=what)
    check_where(like, device)
    Groups((1, 1), granularity)
    multiple = _checks.integer("prove", "multiple", multiple, 1)
    if len(shapes(granularity, multiple)) < 2:
        raise Error(f"[prove] multiple: expected a divisor of sizes up to 16384 that are whole groups of {granularity}, got {multiple}")
    result = Result(what or f"{format} {granularity} {scale}")
    call = _Call(f, format, granularity, source, (like, device), inverse)
    with Clock(result, seconds) as clock:
        judge = _Judge(call, formats.formats()[format]["amax_target"] if target is None else float(target), scale, result)
        if rounding == "stochastic":
            check_stochastic(call, format, granularity, judge.target, result, clock)
        else:
            judge.regular(regular_matrices(format, granularity, source, multiple, judge.target), clock)
        if result:
            judge.edges(edge_matrices(format, granularity, source, multiple), rounding == "near", clock)
        if result and rounding == "near":
            check_layouts(call, granularity, multiple, result, clock)
    return result


class _Call:
    """f on a matrix of f32 values that the source holds: values of the codes, and dequantizing scales, both f32."""

    def __init__(self, f, format, granularity, source, where, inverse):
        self._f, self.format, self.granularity, self.source = f, format, granularity, source
        self._where, self._inverse = where, inverse

    def given(self, x: np.ndarray):
        """x as f takes it, with x's strides."""
        if self.source == "f32":
            return give(x.view(np.uint32), "f32", *self._where)
        return give(_laid_out_as(x, formats.encode(x, self.source, saturate=False)), self.source, *self._where)

    def raw(self, given):
        results = called(self._f, given)
        try:
            codes, scale = results
        except (TypeError, ValueError):
            raise Wrong(f"[prove] expected codes and scale, got {type(results).__name__}") from None
        return np.array(read(codes)), np.array(read(scale))

    def __call__(self, x: np.ndarray):
        with np.errstate(all="ignore"):
            codes, scale = self.raw(self.given(x))
        if codes.shape != x.shape or codes.itemsize != 1:
            raise Wrong(f"[prove] expected codes of one byte in shape {x.shape}, got {codes.dtype} {codes.shape}")
        values = formats.decode(np.ascontiguousarray(codes).view(np.uint8), self.format)
        groups = Groups(x.shape, self.granularity)
        scale = _f32_scales(scale)
        if scale.size != groups.count:
            raise Wrong(f"[prove] expected {groups.count} scales of {x.shape} in groups {self.granularity}, got {scale.size}")
        with np.errstate(divide="ignore"):
            return values, np.float32(1) / scale if self._inverse else scale


def _laid_out_as(x: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """16-bit words with the strides of f32 x, as many elements from a multiple of 16 bytes; ones (NaN) between them."""
    strides = [stride // 4 for stride in x.strides]
    span = sum((n - 1) * stride for n, stride in zip(x.shape, strides)) + 1
    begin = x.ctypes.data % 16 // 4
    memory = np.full(span + begin, 0xFFFF, np.uint16)
    view = np.lib.stride_tricks.as_strided(memory[begin:], x.shape, [2 * stride for stride in strides])
    view[...] = bits
    return view


def _f32_scales(scale: np.ndarray) -> np.ndarray:
    scale = np.ascontiguousarray(scale).reshape(-1)
    if scale.dtype == np.uint8:
        return formats.decode(scale, "e8m0")
    return formats.decode(scale, "bf16") if scale.dtype == np.uint16 else scale.astype(np.float32)


class _Judge:
    def __init__(self, call, target, scale, result):
        self.call, self.target, self.result = call, target, result
        self.scale_rules, self.rule = SCALE_RULES[scale], None
        self.is_power = scale != "amax"

    def regular(self, matrices, clock) -> None:
        """Runs all, then takes the rules that most groups and elements follow; what they do not explain is a difference."""
        runs = []
        for case, x in matrices:
            if clock.is_over:
                break
            try:
                runs.append((case, x, *self.call(x)))
            except Refused as refused:
                self.result.chose(f"not taken: {case}: {refused}")
        if not runs:
            raise Refused("no matrix was taken")
        scale_hits = {name: [self._scale_hits(name, run) for run in runs] for name in self.scale_rules}
        data_rules = DATA_RULES if not self.is_power else {"x / scale": DATA_RULES["x / scale"]}
        data_hits = {name: [self._data_hits(name, run) for run in runs] for name in data_rules}
        best = {kind: max(hits, key=lambda name: sum(int(h.sum()) for h in hits[name]))
                for kind, hits in (("scale", scale_hits), ("data", data_hits))}
        self.rule = best["scale"], best["data"]
        for run, of_scale, of_data in zip(runs, scale_hits[self.rule[0]], data_hits[self.rule[1]]):
            self.result.count(of_scale)
            self.result.count(of_data)
            if not of_scale.all():
                self._tell_scale(run, int(np.flatnonzero(~of_scale)[0]))
            elif not of_data.all():
                self._tell_data(run, of_data)
        self.result.chose(f"scale: {self.rule[0]}")
        self.result.chose(f"data: {self.rule[1]}")

    def _scales(self, name, x):
        with np.errstate(all="ignore"):
            return self.scale_rules[name](Groups(x.shape, self.call.granularity).largest(x), self.target).astype(np.float32)

    def _scale_hits(self, name, run):
        _, x, _, scale = run
        groups = Groups(x.shape, self.call.granularity)
        return (scale == self._scales(name, x)) | (groups.largest(x) == 0)

    def _data_values(self, name, x, scale):
        groups = Groups(x.shape, self.call.granularity)
        with np.errstate(all="ignore"):
            quotient = DATA_RULES[name](x, scale[groups.ids], groups.largest(x)[groups.ids], self.target)
        return encoded(np.where(x == 0, x, quotient).astype(np.float32), self.call.format)

    def _data_hits(self, name, run):
        _, x, values, scale = run
        return values == self._data_values(name, x, scale)

    def _tell_scale(self, run, group) -> None:
        case, x, _, scale = run
        amax = Groups(x.shape, self.call.granularity).largest(x)[group : group + 1]
        expected = self._scales(self.rule[0], x)[group : group + 1]
        self.result.differ(f"{case}, scale of group {group} by '{self.rule[0]}'", f"amax {hexes(amax)} = {amax[0]:.9g}",
                           f"{hexes(expected)} = {expected[0]:.9g}", f"{hexes(scale[group : group + 1])} = {scale[group]:.9g}")

    def _tell_data(self, run, hits) -> None:
        case, x, values, scale = run
        wrong = np.flatnonzero(~hits.reshape(-1))
        expected = self._data_values(self.rule[1], x, scale)

        def differs(kept):
            part = np.zeros(x.size, np.float32)
            part[kept] = x.reshape(-1)[kept]
            try:
                got, own = self.call(part.reshape(x.shape))
            except Refused:
                return False
            return not self._data_hits(self.rule[1], (case, part.reshape(x.shape), got, own)).all()

        kept = smallest_part(x.size, differs) if differs(np.arange(x.size)) else wrong[:1]
        i = int(wrong[0])
        self.result.differ(f"{case}, {len(wrong)} of {x.size} data by '{self.rule[1]}', first [{i // x.shape[1]}, {i % x.shape[1]}]",
                           f"{hexes(x.reshape(-1)[kept])} at {kept[:6].tolist()}, the rest 0" if len(kept) < x.size else "the whole matrix",
                           f"{expected.reshape(-1)[i]:.9g}", f"{values.reshape(-1)[i]:.9g}")

    def edges(self, matrices, is_near: bool, clock) -> None:
        for edge, x in matrices:
            if clock.is_over:
                return
            try:
                values, scale = self.call(x)
            except Refused as refused:
                self.result.chose(f"not taken: {edge}: {refused}")
                continue
            groups = Groups(x.shape, self.call.granularity)
            if self.call.granularity != "tensor" and is_near and self.rule:
                self._others(edge, x, values, scale, groups)
            mine = groups.ids == 0
            self._edge(edge, x[mine], values[mine], scale[0], is_near)

    def _others(self, edge, x, values, scale, groups) -> None:
        """Groups beside the one at the edge are as always."""
        mine = groups.ids == 0
        hits = (values == self._data_values(self.rule[1], x, scale)) | mine
        of_scale = self._scale_hits(self.rule[0], (edge, x, values, scale))
        of_scale[0] = True
        self.result.count(hits[~mine])
        if not hits.all() or not of_scale.all():
            at = np.argwhere(~hits)[0].tolist() if not hits.all() else f"scale {int(np.flatnonzero(~of_scale)[0])}"
            self.result.differ(f"a group of {edge} changes another one", f"group 0: {hexes(x[mine])}", "as beside other groups",
                               f"differs at {at}")

    def _edge(self, edge, x, values, scale, is_near) -> None:
        with np.errstate(all="ignore"):
            decoded = values.astype(np.float64) * np.float64(scale)
        if edge == "infinity":
            return  # nobody documents more than that other groups do not change
        if edge == "NaN":
            may_be_zero = any(choice.name == "zero" for choice in choices_of("nan", self.call.format))
            self._hold(edge, x, decoded, ~np.isnan(x) | np.isnan(decoded) | (may_be_zero & (decoded == 0)), scale, "NaN")
            return
        if edge == "zeros":
            self._hold(edge, x, decoded, (values == 0) & (decoded == 0), scale, "0")
            name = "one" if scale == 1 else "zero" if scale == 0 else "smallest"
            self.result.chose(str(next(c for c in choices_of("scale of zeros") if c.name == name)))
            return
        hits = self._near(x, decoded, scale, is_near)
        if scale == SMALLEST and not hits.all() and self._near(x, 2 * decoded, 2 * scale, is_near).all():
            self.result.chose(str(choices_of("scale of 2^-127")[0]))
            hits = np.ones(x.shape, bool)
        self._hold(edge, x, decoded, hits, scale, "within half a step, finite")

    def _near(self, x, decoded, scale, is_near):
        """Within half a step of the format at x / scale (a whole one when stochastic), with 2^-6 of it for the arithmetic."""
        if scale == 0 or not np.isfinite(scale):
            return (decoded == 0) & (scale == 0)
        points = grid(self.call.format)
        quotient = np.abs(x.astype(np.float64)) / np.float64(scale)
        at = np.clip(np.searchsorted(points, quotient, side="right"), 1, len(points) - 1)
        step = (points[at] - points[at - 1]) * (0.5 if is_near else 1)
        largest = points[-2]
        limit = np.where(quotient > largest, quotient - largest, step)
        is_short = int(np.float32(scale).view(np.uint32)) & 0xFFFF == 0  # a scale of 16 bits
        lost = max(2.0**-8, 2.0**-133 / scale) if is_short else max(2.0**-20, 2.0**-149 / scale)  # by rounding the scale
        may_saturate = ~((quotient > largest * (1 + lost)) & (not self.is_power))
        of_data = 2.0**-8 if self.rule and self.rule[1].startswith("bf16") else 2.0**-20
        return np.isfinite(decoded) & may_saturate & (quotient < 2 * largest) & (
            np.abs(np.abs(decoded) / np.float64(scale) - quotient) <= limit * (1 + 2.0**-6) + of_data * quotient)

    def _hold(self, edge, x, decoded, hits, scale, expected) -> None:
        self.result.count(hits)
        if not hits.all():
            i = int(np.flatnonzero(~hits)[0])
            self.result.differ(f"group of {edge}", f"{hexes(x[i : i + 1])} = {x[i]:.9g}, amax {np.max(np.abs(x)):.9g}",
                               f"{expected}", f"{decoded[i]:.9g} with scale {scale:.9g}")
