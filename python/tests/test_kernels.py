"""The optimizer's C interface on NumPy's memory, against `octet optim-step`: no PyTorch needed."""

import json

import ml_dtypes
import numpy as np
import octet
import pytest
from conftest import same_bits
from octet import _optimizer as c

STEPS, N = 50, 1000
LR, BETAS, EPS, DECAY = 1e-3, (0.9, 0.95), 1e-8, 0.1


def read_safetensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    types = {"F32": np.float32, "BF16": np.uint16, "I16": np.int16, "U32": np.uint32}
    return {name: np.frombuffer(data[8 + size:][slice(*entry["data_offsets"])], types.get(entry["dtype"], np.uint8))
            for name, entry in header.items() if name != "__metadata__"}


class Weight:
    """One weight and its states in NumPy's memory."""

    def __init__(self, kernels, values, dtype, name="weights"):
        self.kernels, self.n, self.name = kernels, len(values), c.name_hash(name)
        self.dtype = dtype
        layout = kernels.layout(self.n, dtype)
        self.layout = layout
        width = {1: np.uint8, 2: np.uint16, 4: np.float32}
        self.m, self.v = np.zeros(self.n, width[layout.m_bytes]), np.zeros(self.n, width[layout.v_bytes])
        self.m_meta, self.v_meta = np.zeros(layout.m_groups, np.uint32), np.zeros(layout.v_groups, np.uint32)
        values = np.asarray(values, np.float32)
        self.master = None
        if dtype == c.F32:
            self.w = values.copy()
        elif dtype == c.FP16:
            self.w = values.astype(np.float16)
        elif layout.master == c.REMAINDER:  # the master is split half up
            bits = values.view(np.uint32)
            self.w = ((bits + np.uint32(0x8000)) >> np.uint32(16)).astype(np.uint16)
            self.master = (bits & np.uint32(0xFFFF)).astype(np.uint16).view(np.int16)
        else:
            self.w = values.astype(ml_dtypes.bfloat16).view(np.uint16)
        if layout.master == c.MASTER_F32:
            self.master = values.copy()

    def row(self, gradient, gradient_dtype, t):
        def address(array):
            return None if array is None or array.size == 0 else array.ctypes.data

        self.t = np.array([t - 1])
        return c.Tensor(address(self.w), address(gradient), address(self.master), address(self.m), address(self.v),
                        address(self.m_meta), address(self.v_meta), self.n, self.name, LR, *BETAS, EPS, DECAY,
                        self.t.ctypes.data, self.dtype, gradient_dtype)

    def decoded(self, which):
        values = np.empty(self.n, np.float32)
        stored, meta = ((self.m, self.m_meta), (self.v, self.v_meta))[which]
        self.kernels.decode(which, stored.ctypes.data, meta.ctypes.data if meta.size else None, values.ctypes.data, self.n)
        return values


def step(kernels, rows, clip=0.0, attempt=1):
    return kernels.step((c.Tensor * len(rows))(*rows), len(rows), clip, attempt)


def inputs(seed=1, scale=1e-2, n=N):
    rng = np.random.default_rng(seed)
    gradients = (rng.standard_normal((STEPS, n)) * scale * np.exp(rng.standard_normal(n))).astype(np.float32)
    gradients[:, ::17] = 0
    return rng.standard_normal(n).astype(np.float32) * np.float32(0.02), gradients


@pytest.mark.parametrize("state", ["e4m3+x", "e4m3", "e5m2+x", "hif8+x", "de8+x", "bf16", "f32", "e4m3_sr+x", "bf16_sr"])
@pytest.mark.parametrize("master", ["bf16_remainder", "bf16_sr", "fp32"])
@pytest.mark.parametrize("math", ["fast", "exact"])
def test_fifty_steps_are_the_programs_bits(program, tmp_path, state, master, math):
    if math == "exact" and "+x" not in state:
        pytest.skip("no powers in this state")
    n = N if math == "fast" else 300
    weights, gradients = inputs(n=n)
    weights.tofile(tmp_path / "w")
    gradients.tofile(tmp_path / "g")
    program("optim-step", "--state-m", state, "--state-v", state, "--master", master, "--math", math, "--steps", STEPS,
            "--grads", tmp_path / "g", "--weights", tmp_path / "w", "--out", tmp_path / "o", "--lr", LR, "--clip", 1,
            "--seed", 5)
    expected = read_safetensors(tmp_path / "o")
    kernels = c.Kernels(state, state, master, math, 128, seed=5)
    weight = Weight(kernels, weights, c.F32 if master == "fp32" else c.BF16)
    for t in range(1, STEPS + 1):
        result = step(kernels, [weight.row(gradients[t - 1], c.F32, t)], clip=1.0, attempt=t)
        assert result.skipped == 0 and weight.t[0] == t
        norm = np.sqrt(np.sum(gradients[t - 1].astype(np.float64) ** 2))
        assert abs(result.grad_norm / norm - 1) < 1e-12
    if master == "fp32":
        assert same_bits(weight.w, expected["weights"])
    else:
        assert same_bits(weight.w, expected["weight_hi"].view(np.uint16))
    if master == "bf16_remainder":
        assert same_bits(weight.master, expected["weight_lo"])
    assert same_bits(weight.decoded(0), expected["m"])
    assert same_bits(weight.decoded(1), expected["v"])
    if weight.layout.m_groups:
        assert same_bits(weight.m, expected["m_codes"].view(np.uint8))
        assert same_bits(weight.m_meta, expected["m_meta"])


def test_the_norm_is_of_all_tensors_and_in_their_order():
    kernels = c.Kernels("f32", "f32", "fp32", "exact", 128)
    values, gradients = inputs(n=640)
    whole = Weight(kernels, values, c.F32)
    result = step(kernels, [whole.row(gradients[0], c.F32, 1)], clip=1e-2)
    parts = [Weight(kernels, values[a:b], c.F32, f"w{a}") for a, b in ((0, 128), (128, 640))]
    pieces = [gradients[0][:128].copy(), gradients[0][128:].copy()]
    both = step(kernels, [w.row(g, c.F32, 1) for w, g in zip(parts, pieces)], clip=1e-2)
    assert abs(both.grad_norm / result.grad_norm - 1) < 1e-12
    assert np.allclose(np.concatenate([w.w for w in parts]), whole.w, rtol=1e-6, atol=0)


def test_gradients_of_16_bits_are_read_as_their_values():
    values, gradients = inputs()
    for dtype, word in ((c.BF16, ml_dtypes.bfloat16), (c.FP16, np.float16)):
        narrow = gradients[0].astype(word)
        results = []
        for gradient, kind in ((narrow, dtype), (narrow.astype(np.float32), c.F32)):
            kernels = c.Kernels("e4m3+x", "e4m3+x", "bf16_remainder", "fast", 128)
            weight = Weight(kernels, values, c.BF16)
            results.append((step(kernels, [weight.row(gradient, kind, 1)], clip=0.1).grad_norm, weight))
        assert results[0][0] == results[1][0]
        assert same_bits(results[0][1].w, results[1][1].w) and same_bits(results[0][1].m, results[1][1].m)


def test_fp16_weights_follow_their_f32_masters():
    values, gradients = inputs()
    kernels = c.Kernels("f32", "f32", "bf16_remainder", "exact", 128)
    half, full = Weight(kernels, values, c.FP16), Weight(kernels, values, c.F32)
    for t in range(1, 11):
        step(kernels, [half.row(gradients[t], c.F32, t)])
        step(kernels, [full.row(gradients[t], c.F32, t)])
    assert same_bits(half.master, full.w)
    assert same_bits(half.w, full.w.astype(np.float16))


def test_results_do_not_depend_on_the_number_of_threads():
    values, gradients = inputs(n=100_003)
    results = []
    for threads in (1, 3):
        kernels = c.Kernels("e4m3_sr+x", "e4m3+x", "bf16_sr", "fast", 128, seed=3, threads=threads)
        weight = Weight(kernels, values, c.BF16)
        step(kernels, [weight.row(gradients[0], c.F32, 1)], clip=1.0)
        results.append((weight.w.tobytes(), weight.m.tobytes(), weight.v.tobytes()))
    assert results[0] == results[1]


def test_names_seeds_and_attempts_key_the_random_bits():
    values, gradients = inputs()

    def after(name="weights", seed=1, attempt=1):
        kernels = c.Kernels("e4m3+x", "e4m3+x", "bf16_sr", "fast", 128, seed=seed)
        weight = Weight(kernels, values, c.BF16, name)
        step(kernels, [weight.row(gradients[0], c.F32, 1)], attempt=attempt)
        return weight.w.tobytes()

    assert after() == after()
    assert len({after(), after(name="other"), after(seed=2), after(attempt=2)}) == 4


@pytest.mark.parametrize("flaw", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(flaw):
    kernels = c.Kernels("e4m3+x", "e4m3+x", "bf16_remainder", "fast", 128)
    values, gradients = inputs()
    weights = [Weight(kernels, values, c.BF16, name) for name in ("a", "b")]
    step(kernels, [w.row(gradients[0], c.F32, 1) for w in weights])
    before = [getattr(w, part).tobytes() for w in weights for part in ("w", "master", "m", "v", "m_meta", "v_meta")]
    bad = gradients[1].copy()
    bad[77] = flaw
    result = step(kernels, [weights[0].row(gradients[1], c.F32, 2), weights[1].row(bad, c.F32, 2)], attempt=2)
    assert result.skipped == 1 and [w.t[0] for w in weights] == [1, 1]
    assert before == [getattr(w, part).tobytes() for w in weights
                      for part in ("w", "master", "m", "v", "m_meta", "v_meta")]


@pytest.mark.parametrize("state", ["e4m3+x", "e4m3", "hif8+x", "de8+x", "bf16", "f32"])
def test_moments_survive_a_round_trip(state):
    kernels = c.Kernels(state, state, "fp32", "exact", 128)
    values, gradients = inputs()
    weight = Weight(kernels, values, c.F32)
    for t in range(1, 6):
        step(kernels, [weight.row(gradients[t], c.F32, t)], attempt=t)
    for which, (stored, meta) in enumerate(((weight.m, weight.m_meta), (weight.v, weight.v_meta))):
        decoded = weight.decoded(which)
        again, words = np.zeros_like(stored), np.zeros_like(meta)
        kernels.encode(which, decoded.ctypes.data, again.ctypes.data, words.ctypes.data if words.size else None, len(decoded))
        twice = np.empty_like(decoded)
        kernels.decode(which, again.ctypes.data, words.ctypes.data if words.size else None, twice.ctypes.data, len(decoded))
        error = np.abs(twice - decoded)
        if state in ("f32", "bf16"):
            assert error.max() == 0
        else:  # a group's largest value may be another after it was rounded; the rest moves by codes
            assert np.linalg.norm(error) <= 0.05 * np.linalg.norm(decoded)


def test_empty_tensors_are_updated_as_well():
    kernels = c.Kernels("e4m3+x", "e4m3+x", "bf16_remainder", "fast", 128)
    empty = Weight(kernels, np.zeros(0, np.float32), c.BF16)
    assert step(kernels, [empty.row(np.zeros(0, np.float32), c.F32, 1)]).grad_norm == 0
    assert kernels.step((c.Tensor * 1)(), 0, 0.0, 1).skipped == 0


@pytest.mark.parametrize("changes,text", [
    ({"weight": None}, "weight: expected memory"),
    ({"gradient": None}, "gradient: expected memory"),
    ({"m": None}, "first moment: expected memory"),
    ({"v_meta": None}, "second moment's metadata: expected memory"),
    ({"master": None}, "master: expected memory"),
    ({"n": -1}, "expected 0 elements or more"),
    ({"t": None}, "counter: expected memory"),
    ({"dtype": 9}, "expected f32, bf16 or fp16, got 9"),
    ({"gradient_dtype": -1}, "expected f32, bf16 or fp16, got -1"),
])
def test_mistakes_change_nothing_and_are_errors_of_one_line(changes, text):
    kernels = c.Kernels("e4m3+x", "e4m3+x", "bf16_remainder", "fast", 128)
    values, gradients = inputs()
    good, bad = Weight(kernels, values, c.BF16, "good"), Weight(kernels, values, c.BF16, "bad")
    before = good.w.tobytes()
    with pytest.raises(octet.Error, match=text) as caught:
        wrong = bad.row(gradients[0], c.F32, 1)
        for key, value in changes.items():
            setattr(wrong, key, value)
        step(kernels, [good.row(gradients[0], c.F32, 1), wrong])
    assert "\n" not in str(caught.value) and good.w.tobytes() == before


def test_misaligned_memory_is_refused():
    kernels = c.Kernels("f32", "f32", "fp32", "exact", 128)
    values, gradients = inputs()
    weight = Weight(kernels, values, c.F32)
    row = weight.row(gradients[0], c.F32, 1)
    row.gradient += 1
    row.n -= 1
    with pytest.raises(octet.Error, match="aligned to 4 bytes"):
        step(kernels, [row])


@pytest.mark.parametrize("choices,text", [
    (("e9m9", "f32", "fp32", "fast", 128), "state format"),
    (("f32", "f32", "half", "fast", 128), "master"),
    (("f32", "f32", "fp32", "quick", 128), "expected math exact or fast"),
    (("f32", "f32", "fp32", "fast", 0), "expected groups of 1 to"),
    (("f32", "f32", "fp32", "fast", 4096), "expected groups of 1 to"),
])
def test_unknown_choices_name_the_known_ones(choices, text):
    with pytest.raises(octet.Error, match=text):
        c.Kernels(*choices)
