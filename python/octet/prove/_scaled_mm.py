"""prove.scaled_mm: products of 8-bit matrices, by the rule of the card to the bit, or within what any order of f32 sums can give."""

from __future__ import annotations

import numpy as np

from .. import _checks, formats
from ._groups import narrowed
from ._libraries import Refused, Wrong, called, check_where, read
from ._result import Clock, Result, hexes
from ._sums import TILE, Sums, has_rule, hypotheses, tensor_sums

__all__ = ["scaled_mm"]

PROMISES = {None: None, "f32": None, "fast": Sums(0), "promoted": Sums(128)}
KS = (16, 32, 48, 128, 160, 256, 1024, 4096, 14336)
TYPES = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}  # of a and b, with PyTorch's names
LARGEST = 1 << 20  # of M, N and K
KINDS = ("normal", "mean", "wide", "cancel")
SHOWN = 8  # rows and columns of a product that are held to the rule, spread over it
N_WHOLE = 2  # of the smallest K products are held to the rule as a whole
DRAWN = 67  # rows of a factor that are drawn where a product is not held as a whole; they stand there again and again


def scaled_mm(f, a: str = "e4m3", b: str = "e4m3", *, scaling: str = "tensor", out: str = "f32", sums: str | None = None,
              like: str = "torch", device: str = "cpu", rule: bool | None = None, size: tuple[int, int] = (32, 48),
              ks: tuple[int, ...] = KS, seconds: float | None = None, what: str | None = None) -> Result:
    """Holds products y = scale_a scale_b (a b^T) to the definition.

    f: takes codes a [M, K] and b [N, K], contiguous, and f32 scales: [1] and [1], or with scaling="row" [M, 1] and [1, N]; gives
        y [M, N] in f32 or bf16. like="torch": codes as float8_e4m3fn or float8_e5m2 on `device`; "numpy": uint8.
    sums: what is promised. fast: one chain over K; promoted: parts of 128 added in f32; f32: any order of f32 additions;
        None: any of these, and the result says which.
    rule: whether the device adds as Hopper's tensor cores do; None: asks PyTorch for a device of capability 9.0.
    size: M, N.  ks: sizes K, by default 16 to 14,336. With a single one in each row of a, y has the values of b: no column may be lost.
    A device without a rule, or of which no rule fits, is held to an interval: K 2^-24 of the sum of magnitudes, and out's rounding.
    Where f raises at a K, `choices` of the result says so; where it raises at once, the result is skipped and not true. Raises
    octet.Error for arguments.
    """
    _checks.function("prove", f=f)
    for name, value, known in (("a", a, TYPES), ("b", b, TYPES), ("scaling", scaling, ("tensor", "row")), ("out", out, ("f32", "bf16")),
                               ("sums", sums, PROMISES)):
        _checks.one_of("prove", name, value, known)
    if rule is not None:
        _checks.flag("prove", rule=rule)
    if seconds is not None:
        _checks.number("prove", "seconds", seconds, 0)
    if what is not None:
        _checks.text("prove", what=what)
    size, ks = (_checks.integers("prove", name, value, 1, LARGEST) for name, value in (("size", size), ("ks", ks)))
    if len(size) != 2:
        _checks.refuse("prove", "size", "M and N", size)
    check_where(like, device)
    result = Result(what or f"{a} x {b} {scaling}")
    if rule is None:
        rule = device == "cuda" and _is_hopper()
    proof = _Product(f, (a, b), (scaling, out), (like, device), result)
    with Clock(result, seconds) as clock:
        proof.structure(size)
        for k in ks:
            if result and not clock.is_over:
                try:
                    proof.sums(size, k, rule and has_rule(a, b), sums, k in sorted(ks)[:N_WHOLE])
                except Refused as refused:
                    result.chose(f"not taken: K {k}: {refused}")
    return result


def _is_hopper() -> bool:
    import torch
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def _factors(kind: str, rows: int, k: int, format: str, seed: int, is_whole: bool) -> np.ndarray:
    if rows > DRAWN and not is_whole:
        return _factors(kind, DRAWN, k, format, seed, True)[np.arange(rows) % DRAWN]
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, k))
    if kind == "mean":
        x = x + 0.3
    elif kind == "wide":
        x = x * np.exp2(rng.uniform(-6, 4, (rows, k)))
    elif kind == "cancel":
        x[:, k // 2 :] = -x[:, : k - k // 2] if seed % 2 else x[:, : k - k // 2]
    return formats.encode(x.astype(np.float32), format)


def _spread(size) -> list[np.ndarray]:
    return [np.linspace(0, n - 1, SHOWN).astype(int) for n in size]


def _all(size) -> list[np.ndarray]:
    return [np.arange(n) for n in size]


class _Product:
    def __init__(self, f, types, way, where, result):
        self._f, self.types, self._where, self.result = f, types, where, result
        self.scaling, self.out = way

    def scales(self, m: int, n: int, exponents=(-3, 2)) -> tuple[np.ndarray, np.ndarray]:
        """Powers of two: they round nothing, in whichever order they are multiplied."""
        if self.scaling == "tensor":
            return tuple(np.float32([2.0**e]) for e in exponents)
        rng = np.random.default_rng(23)
        return tuple(np.exp2(rng.integers(-4, 5, size)).astype(np.float32) for size in ((m, 1), (1, n)))

    def __call__(self, a, b, scales, is_odd: bool = False) -> np.ndarray:
        given = [*(self._codes(c, t) for c, t in zip((a, b), self.types)), *(self._scale(s, is_odd) for s in scales)]
        y = read(called(self._f, *given))
        y = formats.decode(np.ascontiguousarray(y), "bf16") if y.dtype == np.uint16 else y.astype(np.float32)
        if y.shape != (len(a), len(b)):
            raise Wrong(f"[prove] expected a product {len(a)} x {len(b)}, got {y.shape}")
        return y

    def _codes(self, codes, format):
        like, device = self._where
        if like == "numpy":
            return codes
        import torch
        return torch.from_numpy(codes).view(getattr(torch, TYPES[format])).to(device)

    def _scale(self, scale, is_odd):
        """is_odd: at the second element of its memory, 4 bytes beyond what allocators align."""
        held = np.zeros(scale.size + 1, np.float32)
        held[int(is_odd) : scale.size + int(is_odd)] = scale.reshape(-1)
        if self._where[0] == "torch":
            import torch
            held = torch.from_numpy(held).to(self._where[1])
        return held[int(is_odd) : scale.size + int(is_odd)].reshape(scale.shape)

    def stored(self, y: np.ndarray) -> np.ndarray:
        return narrowed(y, "bf16") if self.out == "bf16" else y.astype(np.float32)

    def structure(self, size) -> None:
        """A single one in each row of a takes a column of b, which no rounding can hide; NaN stays in its row and column."""
        for m, n, k in ((64, 48, 64), (128, 64, 128), (256, 16, 256), (16, 16, 80)):
            self._ones(m, n, k, False)
        for m, n, k in ((*size, 256), (16, 16, 80)):
            try:
                self._ones(m, n, k, True)
            except Refused as refused:
                self.result.chose(f"not taken: scales 4 bytes off: {refused}")
        self._nan()

    def _ones(self, m, n, k, is_odd) -> None:
        rng = np.random.default_rng(m + n + k)
        at = rng.permutation(k)[np.arange(m) % k]
        a = np.zeros((m, k), np.uint8)
        a[np.arange(m), at] = formats.encode(np.float32([1]), self.types[0])[0]
        b = formats.encode(rng.standard_normal((n, k)).astype(np.float32) * 3, self.types[1])
        scales = self.scales(m, n)
        y = self(a, b, scales, is_odd)
        expected = self.stored(formats.decode(b, self.types[1])[:, at].T * scales[0] * scales[1])
        self._hold(f"one product a sum, {m} x {n} x {k}" + (", scales 4 bytes off" if is_odd else ""), y, expected, y == expected,
                   lambda i, j: f"a[{i}, {at[i]}] = 1, b[{j}, {at[i]}] = {hexes(b[j, at[i] : at[i] + 1])}")

    def _nan(self) -> None:
        a, b = (np.full((16, 32), formats.encode(np.float32([1]), t)[0]) for t in self.types)
        b[1, 0] = 0x7F
        y = self(a, b, self.scales(16, 16))
        is_column = np.broadcast_to(np.arange(16) == 1, y.shape)
        self._hold("NaN in row 1 of b", y, np.where(is_column, np.nan, y), np.isnan(y) == is_column,
                   lambda i, j: f"b[1, 0] = 0x7f, y[{i}, {j}]")

    def _hold(self, case, y, expected, hits, told, at=None) -> None:
        """at: the rows and the columns of the product that are given, by default all."""
        self.result.count(hits)
        if not hits.all():
            rows, cols = at or _all(y.shape)
            wrong = np.argwhere(~hits)
            i, j = wrong[0]
            columns = sorted(set(cols[wrong[:, 1]].tolist()))[:8]
            self.result.differ(f"{case}: {len(wrong)} of {hits.size} differ, first [{rows[i]}, {cols[j]}], columns {columns}",
                               told(rows[i], cols[j]), f"{expected[i, j]:.9g}", f"{y[i, j]:.9g}")

    def sums(self, size, k, by_rule, promised, is_whole) -> None:
        """Products of all kinds at a K: one way of adding must fit them all. is_whole: in all rows and columns."""
        runs = [self._run(kind, size, k, is_whole) for kind in KINDS]
        if by_rule:
            fit = self._fit(runs, PROMISES[promised])
            if fit is not None:
                is_kept = promised in (None, "f32") or k <= TILE or fit.chain == PROMISES[promised].chain
                self.result.count(np.full((len(runs), SHOWN, SHOWN), is_kept))
                if k > TILE:
                    self.result.chose(f"sums at K {k}: {fit}")
                if not is_kept:
                    self.result.differ(runs[0][0], f"sums promised {promised}", str(PROMISES[promised]), str(fit))
                for run in runs if is_whole else ():
                    self._tell_rule(*run, fit, _all(size))
                return
        for run in runs:
            if by_rule and promised not in (None, "f32"):
                self._tell_rule(*run, PROMISES[promised], _spread(size))
            else:
                self._interval(*run)

    def _run(self, kind, size, k, is_whole):
        a, b = (_factors(kind, n, k, t, 2 * k + i, is_whole) for n, t, i in zip(size, self.types, (1, 0)))
        scales = self.scales(*size)
        x, w = (formats.decode(codes, t) for codes, t in zip((a, b), self.types))
        return f"{kind}, {size[0]} x {size[1]} x {k}", self(a, b, scales), x, w, scales

    def _by_rule(self, x, w, scales, way, at) -> np.ndarray:
        """at: the rows and the columns of y."""
        total = tensor_sums(x[at[0]], w[at[1]], *self.types, way)
        rows, cols = scales if self.scaling == "tensor" else (scales[0][at[0]], scales[1][:, at[1]])
        return self.stored(total * rows * cols)

    def _fit(self, runs, promised) -> Sums | None:
        at = _spread(runs[0][1].shape)

        def fits(way):
            return all((self._by_rule(x, w, scales, way, at) == y[np.ix_(*at)]).all() for _, y, x, w, scales in runs)
        ways = sorted(hypotheses(runs[0][2].shape[1]), key=lambda way: way != promised)
        return next(filter(fits, ways), None)

    def _tell_rule(self, case, y, x, w, scales, way, at) -> None:
        expected, shown = self._by_rule(x, w, scales, way, at), y[np.ix_(*at)]
        self._hold(f"{case}, by the rule '{way}'", shown, expected, shown == expected, lambda i, j: f"row {i} of a, row {j} of b", at)

    def _interval(self, case, y, x, w, scales) -> None:
        scale = scales[0].astype(np.float64) * scales[1]
        x, w = x.astype(np.float64), w.astype(np.float64)
        exact, magnitude = x @ w.T * scale, np.abs(x) @ np.abs(w).T * scale
        unit = 2.0**-8 if self.out == "bf16" else 2.0**-24
        bound = x.shape[1] * 2.0**-24 * magnitude * (1 + unit) + unit * np.abs(exact)
        hits = np.abs(y - exact) <= bound
        self.result.chose("sums: within the interval of f32 additions in any order")
        self._hold(f"{case}, sum of magnitudes {float(magnitude.max()):.4g}", y, exact, hits,
                   lambda i, j: f"row {i} of a, row {j} of b, interval +- {bound[i, j]:.3g}")
