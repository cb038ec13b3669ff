"""prove.optimizer: steps of an AdamW with 8-bit states against its definition, and what any optimizer must keep."""

from __future__ import annotations

import io

import numpy as np

from .. import _checks, _native, formats
from .._arrays import is_torch
from .._error import Error
from ._libraries import Wrong, called, check_where
from ._result import Clock, Result

__all__ = ["optimizer"]

LR, BETAS, EPS, DECAY = 0.01, (0.9, 0.95), 1e-8, 0.1
STEPS = 6
PLACES = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}  # the last place of a number of parameters, beside it
ARITHMETIC = 2.0**-14  # of an update: what f32 operations in any order and approximate roots may lose


def optimizer(make, *, moments=None, stored: tuple[str, str] | None = None, shape: tuple[int, int] = (64, 256), group: int = 256,
              shards: bool = True, dtype: str = "float32", device: str = "cpu", what: str | None = None) -> Result:
    """Holds an AdamW to its definition and its invariants. Needs PyTorch.

    make: make(params, lr=, betas=, eps=, weight_decay=) gives an optimizer.
    moments: moments(optimizer, p) gives its decoded m and v, f32 of p's shape. With them every step is held to the definition:
        m = b1 m + (1-b1) g, v = b2 v + (1-b2) g^2 from the decoded ones before it, w = w - lr (m^ / (sqrt(v^) + eps) + wd w).
    stored: formats of m and v, of octet.formats (de8s and de8u: the dynamic tree of 8-bit optimizers; e4m3): decoded moments lie
        within half a step of them, at the amax of their group of `group` elements. None: not held.
    Always: a zero gradient at rest moves nothing but by decay; a run resumed from its state_dict has the bits of one that was never
    interrupted; a second run has the bits of the first; and, but with shards=False, two shards of whole groups those of the whole.
    Raises octet.Error for arguments.
    """
    check_where("torch", device)
    import torch
    _checks.function("prove", make=make, **({} if moments is None else {"moments": moments}))
    _checks.flag("prove", shards=shards)
    if what is not None:
        _checks.text("prove", what=what)
    _checks.one_of("prove", "dtype", dtype, PLACES)
    shape = _checks.integers("prove", "shape", shape, 1, 1 << 20)
    if len(shape) != 2:
        _checks.refuse("prove", "shape", "rows and columns", shape)
    group = _checks.integer("prove", "group", group, 1)
    _check_stored(stored, moments, shape, group)
    if shards and (shape[0] < 2 or shape[0] // 2 * shape[1] % group != 0):
        raise Error(f"[prove] shards: expected False, or a shape whose upper half is whole groups of {group} elements, got {list(shape)}")
    result = Result(what or getattr(make, "__name__", "optimizer"))
    proof = _Steps(make, moments, stored, (shape, group), getattr(torch, dtype), device, result)
    with Clock(result):
        for check in (proof.rest, proof.definition, proof.again, proof.resume) + ((proof.shards,) if shards else ()):
            if result.first is None:
                check()
    return result


def _check_stored(stored, moments, shape, group) -> None:
    if stored is None:
        return
    if moments is None:
        raise Error("[prove] stored: expected `moments` beside it, which decodes what is held to it, got None")
    stored = _checks.texts("prove", "stored", stored)
    if len(stored) != 2:
        _checks.refuse("prove", "stored", "formats of m and v", stored)
    for format in stored:
        _checks.one_of("prove", "stored", format, [name for name in formats.formats() if _native.format_bytes(name) == 1])
    if shape[0] * shape[1] % group != 0:
        raise Error(f"[prove] group: expected a divisor of the {shape[0] * shape[1]} elements of {list(shape)}, got {group}")


class _Steps:
    def __init__(self, make, moments, stored, sizes, dtype, device, result):
        self._make, self._moments, self.stored, self.result = make, moments, stored, result
        (self.shape, self.group), self.dtype, self.device = sizes, dtype, device

    def _tensor(self, values):
        import torch
        return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(self.device, self.dtype)

    def weights(self, rows=slice(None)):
        import torch
        w = np.random.default_rng(29).standard_normal(self.shape)[rows]
        return torch.nn.Parameter(self._tensor(w))

    def gradient(self, step: int) -> np.ndarray:
        """Rows of magnitudes that differ, and a few spikes."""
        rng = np.random.default_rng(100 + step)
        g = rng.standard_normal(self.shape) * np.exp2(rng.integers(-8, 3, (self.shape[0], 1)))
        return np.where(rng.random(self.shape) < 1e-3, g * 100, g).astype(np.float32)

    def make(self, p, decay=DECAY):
        made = called(lambda: self._make([p], lr=LR, betas=BETAS, eps=EPS, weight_decay=decay))
        if not all(callable(getattr(made, name, None)) for name in ("step", "state_dict", "load_state_dict")):
            raise Wrong(f"[prove] make: expected an optimizer with step, state_dict and load_state_dict, got {type(made).__name__}")
        return made

    def step(self, optimizer, p, gradient) -> None:
        p.grad = self._tensor(gradient)
        called(optimizer.step)

    def run(self, steps, rows=slice(None)) -> np.ndarray:
        p = self.weights(rows)
        optimizer = self.make(p)
        for step in range(steps):
            self.step(optimizer, p, self.gradient(step)[rows])
        return _numbers(p)

    def _hold(self, case, given, expected, got, hits) -> None:
        self.result.count(hits)
        if not hits.all():
            at = tuple(int(i) for i in np.argwhere(~hits)[0])
            self.result.differ(f"{case}: {int((~hits).sum())} of {hits.size} differ, first {list(at)}", given(at),
                               f"{expected[at]:.9g}", f"{got[at]:.9g}")

    def _place(self, w) -> np.ndarray:
        """A unit in the last place of weights."""
        return np.abs(w) * PLACES[str(self.dtype).removeprefix("torch.")] + (2.0**-24 if self.dtype.itemsize == 2 else 2.0**-126)

    def rest(self) -> None:
        p = self.weights()
        before, optimizer = _numbers(p), self.make(p)
        self.step(optimizer, p, np.zeros(self.shape))
        expected, got = before * (1 - LR * DECAY), _numbers(p)
        self._hold("a zero gradient at rest", lambda at: f"w {before[at]:.9g}, decay {LR * DECAY:g}", expected, got,
                   np.abs(got - expected) <= 2 * self._place(before))

    def definition(self) -> None:
        if self._moments is None:
            return
        p = self.weights()
        optimizer = self.make(p)
        m = v = np.zeros(self.shape)
        for step in range(STEPS):
            gradient = _numbers(self._tensor(self.gradient(step)))
            before = _numbers(p)
            self.step(optimizer, p, gradient)
            m, v = BETAS[0] * m + (1 - BETAS[0]) * gradient, BETAS[1] * v + (1 - BETAS[1]) * gradient**2
            corrected = m / (1 - BETAS[0] ** (step + 1)), v / (1 - BETAS[1] ** (step + 1))
            update = LR * corrected[0] / (np.sqrt(corrected[1]) + EPS)
            expected, got = before * (1 - LR * DECAY) - update, _numbers(p)
            places = 2 * self._place(np.maximum(np.abs(before), np.abs(expected)))
            self._hold(f"step {step + 1}", lambda at: f"w {before[at]:.9g}, g {gradient[at]:.9g}, m {m[at]:.9g}, v {v[at]:.9g}",
                       expected, got, np.abs(got - expected) <= ARITHMETIC * np.abs(update) + places)
            if not self.result:
                return
            m, v = self._decoded(optimizer, p, step, m, v)

    def _decoded(self, optimizer, p, step, m, v):
        """The stored moments of this step, held to the ones that should be stored."""
        try:
            stored = [_numbers(x) for x in self._moments(optimizer, p)]
        except Exception as error:  # noqa: BLE001: the reader's own
            text = " ".join(f"{type(error).__name__}: {error}".split())[:160]
            raise Wrong(f"[prove] moments: expected m and v of shape {self.shape}, got {text}") from error
        if [x.shape for x in stored] != [self.shape] * 2:
            raise Wrong(f"[prove] expected moments m and v of shape {self.shape}, got {[x.shape for x in stored]}")
        for name, format, exact, got in zip("mv", self.stored or (), (m, v), stored):
            bound = _half_steps(exact, format, self.group)
            self._hold(f"{name} after step {step + 1}, in {format}", lambda at: f"{exact[at]:.9g} +- {bound[at]:.3g}", exact, got,
                       np.abs(got - exact) <= bound)
        if self.stored and step == STEPS - 1:
            lost = (stored[1] == 0) & (v > 0)
            if lost.any():
                self.result.chose(f"{int(lost.sum())} of {lost.size} positive v decode to 0")
        return stored

    def again(self) -> None:
        self._same("a second run", self.run(STEPS), self.run(STEPS))

    def _same(self, case, expected, got) -> None:
        bits = [weights.astype(np.float32).view(np.uint32) for weights in (expected, got)]
        self._hold(case, lambda at: f"{STEPS} steps of {list(self.shape)}", expected, got, bits[0] == bits[1])

    def resume(self) -> None:
        import torch
        p, half = self.weights(), STEPS // 2
        optimizer = self.make(p)
        for step in range(half):
            self.step(optimizer, p, self.gradient(step))
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        q = torch.nn.Parameter(p.detach().clone())
        resumed = self.make(q)
        file.seek(0)
        called(lambda: resumed.load_state_dict(torch.load(file, weights_only=False)))
        for step in range(half, STEPS):
            self.step(optimizer, p, self.gradient(step))
            self.step(resumed, q, self.gradient(step))
        self._same(f"resumed after step {half}", _numbers(p), _numbers(q))

    def shards(self) -> None:
        half = self.shape[0] // 2
        parts = [self.run(STEPS, rows) for rows in (slice(0, half), slice(half, None))]
        self._same("two shards", self.run(STEPS), np.concatenate(parts))


def _numbers(tensor) -> np.ndarray:
    return (tensor.detach().float().cpu().numpy() if is_torch(tensor) else np.asarray(tensor)).astype(np.float64)


def _half_steps(exact: np.ndarray, format: str, group: int) -> np.ndarray:
    """Half the step of a format where each value lies, at the amax of its group: de8 has its amax at 1, others at the largest."""
    values = np.unique(formats.decode(np.arange(256, dtype=np.uint32).astype(np.uint8), format).astype(np.float64))
    values = values[np.isfinite(values)]
    flat = exact.reshape(-1, group)
    amax = np.abs(flat).max(axis=1, keepdims=True)
    scaled = flat / np.where(amax > 0, amax, 1) * values[-1]
    at = np.clip(np.searchsorted(values, scaled), 1, len(values) - 1)
    half = (values[at] - values[at - 1]) / 2 + np.maximum(values[0] - scaled, 0)
    return (half * (1 + 2.0**-6) / values[-1] * amax + 2.0**-20 * np.abs(flat)).reshape(exact.shape)
