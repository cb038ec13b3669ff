"""octet.prove: casts, quantizers and products that are right, and eleven planted faults."""

import re
import sys
import time

import numpy as np
import planted
import pytest

import octet
from octet import formats, prove


def e4m3(f, **options):
    return lambda: prove.cast(f, "e4m3", "f32", **options)


def groups(f, **options):
    return lambda: prove.quantizer(f, "e4m3", "1x32", multiple=32, **options)


def mm(f, **options):
    return lambda: prove.scaled_mm(f, like="numpy", ks=(32, 256, 4096), **options)


# What the first difference says, by fault. Threads: docs/prove.md.
PLANTED = {
    "lost columns of a product": (mm(planted.lost_columns), "columns [3, 7, 11"),
    "transpose of a tile": (groups(planted.as_memory_lies), "transposed"),
    "NaN of a quantizer": (groups(planted.amax_in_fp16), "inf"),
    "bits of stochastic rounding": (lambda: prove.quantizer(planted.Stochastic(bits=31), rounding="stochastic"), "bias"),
    "E8M0 code 0": (groups(lambda x: planted.by_e8m0(x, False), scale="e8m0"), "with scale 5.877"),
    "race of scales": (lambda: groups(planted.Race())(), "scale of group 1"),
    "two arithmetics": (e4m3(planted.through_bf16), "right when alone"),
    "tiny groups": (groups(planted.without_bound), "nan with scale 0"),
    "unaligned scales": (mm(planted.aligned_scales), "4 bytes off"),
    "short accumulator": (mm(planted.card(0), rule=True, sums="promoted"), "promoted every 128"),
    "rows beyond the eighth": (mm(planted.without(slice(8, None), slice(None)), rule=True, sums="promoted"), "by the rule 'promoted every 128'"),
}

HEALTHY = {
    "E4M3 by arithmetic": e4m3(planted.own_e4m3),
    "NumPy's float16": lambda: prove.cast(lambda x: x.astype(np.float16), "fp16"),
    "Octet's quantizers": lambda: prove.quantizer(lambda x: tuple(formats.quantize(x, "e4m3", "1x16")), "e4m3", "1x16"),
    "Octet's HiF8": lambda: prove.quantizer(lambda x: tuple(formats.quantize(x, "hif8", "row")), "hif8", "row"),
    "groups of 32": groups(planted.by_groups),
    "inverse scales": groups(planted.by_inverse_scales, inverse=True),
    "MX": groups(planted.by_e8m0, scale="e8m0"),
    "stochastic rounding": lambda: prove.quantizer(planted.Stochastic(), rounding="stochastic"),
    "products in f32": mm(planted.product, sums="f32"),
    "a card": mm(planted.card(128), rule=True, sums="promoted"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_fault_is_found(name):
    proof, words = PLANTED[name]
    result = proof()
    assert not result and result.equal < result.cases
    assert words in result.first.line()


def test_planted_faults_are_found_within_a_minute():
    begin = time.perf_counter()
    assert [name for name, (proof, _) in PLANTED.items() if proof()] == []
    assert time.perf_counter() - begin < 60


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_function_gives_no_alarm(name):
    result = HEALTHY[name]()
    assert result.first is None and not result.skipped, str(result)
    assert result.equal == result.cases > 1000


@pytest.mark.parametrize("source", ["f32", "bf16", "fp16"])
def test_strides_that_are_ignored_are_found(source):
    """A matrix with padding behind its rows is read as if it had none."""
    def f(x):
        if x.strides[0] > x.shape[1] * x.itemsize:
            x = np.lib.stride_tricks.as_strided(x, x.shape, (x.shape[1] * x.itemsize, x.itemsize))
        return planted.by_groups(np.asarray(x, np.float32))
    result = prove.quantizer(f, "e4m3", "1x32", source=source, multiple=32)
    assert "rows with padding behind them" in result.first.case
    assert prove.quantizer(lambda x: planted.by_groups(np.asarray(x, np.float32)), "e4m3", "1x32", source=source, multiple=32)


def test_int8_gives_no_alarm():
    result = prove.quantizer(lambda x: tuple(formats.quantize(x, "int8", "row")), "int8", "row")
    assert result.first is None and result.equal == result.cases, str(result)


def test_small_products_are_held_as_a_whole():
    result = prove.scaled_mm(planted.without(1, 2), like="numpy", ks=(4096, 256, 32), rule=True, sums="promoted")
    assert "first [1, 2], columns [2]" in result.first.case and result.first.input == "row 1 of a, row 2 of b"


@pytest.mark.parametrize("format, source", [("int8", "bf16"), ("hif8", "fp16")])
def test_stochastic_quantizers_of_narrow_sources_are_proved(format, source):
    """Points that the source cannot hold are left out."""
    rng, target = np.random.default_rng(4), formats.formats()[format]["amax_target"]

    def f(x):
        x = np.asarray(x, np.float32)
        scale = np.maximum(np.abs(x).max() / np.float32(target), planted.TINY)
        with np.errstate(all="ignore"):
            return formats.encode(x / scale, format, "sr", bits=rng.integers(0, 2**32, x.shape, dtype=np.uint32)), np.float32([scale])
    result = prove.quantizer(f, format, rounding="stochastic", source=source)
    assert result and not result.skipped, str(result)


def test_stochastic_quantizers_end_in_time():
    result = prove.quantizer(planted.Stochastic(), rounding="stochastic", seconds=0)
    assert result and result.cases < 1 << 17


def test_shared_random_bits_are_found():
    result = prove.quantizer(planted.Stochastic(is_shared=True), rounding="stochastic")
    assert "apart" in result.first.case or "bias" in result.first.case


@pytest.mark.parametrize("source", ["f32", "bf16", "fp16"])
def test_stochastic_casts_are_proved(source):
    result = prove.cast(planted.StochasticCast(), "e4m3", source, rounding="stochastic")
    assert result and result.equal == result.cases > 1 << 20
    for lost in (31,) if source == "bf16" else (28, 31):  # between two neighbours BF16 has 16 values: 4 bits are enough for them
        result = prove.cast(planted.StochasticCast(lost), "e4m3", source, rounding="stochastic")
        assert result.first.case.startswith("bias of"), lost


@pytest.mark.parametrize("format", ["e4m3", "e5m2", "hif8", "bf16", "fp16", "int8"])
@pytest.mark.parametrize("source", ["f32", "bf16", "fp16"])
@pytest.mark.parametrize("saturate", [True, False])
def test_own_encoders_give_no_alarm(format, source, saturate):
    result = prove.cast(lambda x: formats.encode(x, format, saturate=saturate), format, source)
    assert result.first is None and result.equal == result.cases, str(result)


def test_first_difference_has_the_simplest_bits():
    """Everything below 1 / 16 is lost: of all inputs the one with the fewest significant bits is shown."""
    result = prove.cast(lambda x: formats.encode(np.where(np.abs(x) < 1 / 16, np.copysign(np.float32(0), x), x), "e4m3"), "e4m3")
    assert result.first.input == "0x3d000000 = 0.03125" and result.first.expected == "0.03125 (0x10)" and result.first.got == "0 (0x00)"
    assert "first difference" in str(result) and "0x3d000000" in str(result)


def test_fault_that_needs_neighbours_is_shrunk():
    """A number is wrong when a NaN stands before it."""
    def f(x):
        codes = formats.encode(x, "e4m3")
        codes[1:][np.isnan(x[:-1]) & ~np.isnan(x[1:])] = 1
        return codes
    result = prove.cast(f, "e4m3")
    assert result.first.case == "element 1 of 2, right when alone" and result.first.input == "0x7fffffff 0x80000000 = -0"


@pytest.mark.parametrize("overflow, is_right", [("saturate", True), ("nan", False), (None, True)])
def test_overflow_is_held_to_what_is_promised(overflow, is_right):
    result = prove.cast(lambda x: formats.encode(x, "e4m3"), "e4m3", "fp16", overflow=overflow)
    assert bool(result) is is_right
    if not is_right:
        assert result.first.case == "overflow" and result.first.expected == "nan (0x7f)"


def test_choices_are_followed_by_all_inputs_or_are_none():
    def f(x):
        codes = formats.encode(x, "e4m3", saturate=False)
        return np.where((x > 1e9) & np.isfinite(x), np.uint8(0x7E), codes)  # large ones saturate, others do not
    result = prove.cast(f, "e4m3")
    assert result.first.case == "overflow" and any("no documented choice" in c for c in result.choices)


def test_choices_have_sources():
    for choice in prove.CHOICES:
        assert choice.source and choice.name
        assert set(choice.formats.split()) <= set(formats.formats())


@pytest.mark.parametrize("split, chain", [(1, 0), (1, 128), (3, 0)])
def test_ways_of_adding_are_told(split, chain):
    result = prove.scaled_mm(planted.card(chain, split), like="numpy", rule=True, ks=(4096,))
    assert result
    expected = ("one chain (fast accumulation)" if chain == 0 else f"promoted every {chain}") + (f", K split in {split}" if split > 1 else "")
    assert f"sums at K 4096: {expected}" in result.choices


def test_sums_of_cards_are_recorded_ones(shared):
    """The binding, against products of an H200 (promoted and fast)."""
    recorded = np.load(shared / "vectors" / "tensor_sums" / "hopper_products.npz")
    n = 0
    for name in ("e4m3_e4m3_normal_256", "e5m2_e4m3_wide_160", "e4m3_e5m2_mean_1024"):
        types = name.split("_")[:2]
        a, b = (formats.decode(recorded[f"{name}_{side}"][:8], t) for side, t in zip("ab", types))
        for mode, chain in (("fast", 0), ("slow", 128)):
            sums = prove._scaled_mm.tensor_sums(a, b, *types, prove._scaled_mm.Sums(chain))
            assert sums.view(np.uint32).tolist() == recorded[f"{name}_{mode}"][:8, :8].tolist()
            n += sums.size
    assert n == 384


def test_products_without_unaligned_scales_are_proved():
    def f(a, b, scale_a, scale_b):
        if scale_a.ctypes.data % 16 != 0:
            raise ValueError("unaligned")
        return planted.product(a, b, scale_a, scale_b)
    result = prove.scaled_mm(f, like="numpy", ks=(32,))
    assert result and not result.skipped and "not taken: scales 4 bytes off: ValueError: unaligned" in result.choices


def test_pairs_without_a_rule_are_named():
    from octet.prove._sums import has_rule, tensor_sums
    assert has_rule("e4m3", "e5m2") and not has_rule("e5m2", "e5m2") and not has_rule("e4m3", "e4m3", 80)
    with pytest.raises(octet.Error, match="expected a pair of types with a rule for capability 90, got e5m2 and e5m2"):
        tensor_sums(np.ones((1, 4)), np.ones((1, 4)), "e5m2", "e5m2")


@pytest.mark.parametrize("call, words", [
    (lambda: prove.cast(len, "e4m3", overflow="wrap"), "overflow: expected saturate, nan, inf or None, got 'wrap'"),
    (lambda: prove.cast(len, "e4m3", "f64"), "source: expected one of f32 bf16 fp16, got 'f64'"),
    (lambda: prove.cast(len, "e4m3", rounding="stochastic", overflow="nan"), "overflow: expected None with stochastic rounding"),
    (lambda: prove.cast(len, "e4m3", "f64", rounding="stochastic"), "source: expected one of f32 bf16 fp16, got 'f64'"),
    (lambda: prove.cast(len, "e9m9"), "e9m9"),
    (lambda: prove.cast(len, "e4m3", like="jax"), "like: expected numpy or torch, got 'jax'"),
    (lambda: prove.quantizer(len, source="f64"), "source: expected one of f32 bf16 fp16, got 'f64'"),
    (lambda: prove.quantizer(len, like="jax"), "like: expected numpy or torch, got 'jax'"),
    (lambda: prove.scaled_mm(len, "hif8"), "a: expected one of e4m3 e5m2, got 'hif8'"),
    (lambda: prove.quantizer(len, "fp16"), "got 'fp16'"),
    (lambda: prove.quantizer(len, granularity="4"), "granularity: expected tensor, row, 1xG or BxB up to 1024, got '4'"),
    (lambda: prove.scaled_mm(len, sums="exact"), "got 'exact'"),
    (lambda: prove.scaled_mm(len, like="jax"), "like: expected numpy or torch, got 'jax'"),
    (lambda: prove.scaled_mm(len, like="numpy", device="cuda"), "device: expected cpu with like 'numpy', got 'cuda'"),
    (lambda: prove.cast(len, "e4m3", device="cuda"), "device: expected cpu with like 'numpy', got 'cuda'"),
    (lambda: prove.quantizer(len, device="cuda"), "device: expected cpu with like 'numpy', got 'cuda'"),
    (lambda: prove.quantizer(len, multiple=0), "multiple: expected an integer of 1 or more, got 0"),
    (lambda: prove.quantizer(len, multiple=10**6), "multiple: expected a divisor of sizes up to 16384"),
    (lambda: prove.quantizer(len, granularity="2x3"), "granularity: expected tensor, row, 1xG or BxB up to 1024, got '2x3'"),
    (lambda: prove.quantizer(len, granularity="1x0"), "BxB up to 1024, got '1x0'"),
    (lambda: prove.quantizer(len, granularity=None), "BxB up to 1024, got None"),
    (lambda: prove.quantizer(len, target=0), "target: expected a finite number"),
    (lambda: prove.quantizer(len, target=float("nan")), "target: expected a finite number"),
    (lambda: prove.quantizer(len, seconds=-1), "seconds: expected a finite number of 0 or more, got -1"),
    (lambda: prove.quantizer(len, inverse=1), "inverse: expected True or False, got 1"),
    (lambda: prove.quantizer(3), "f: expected a function, got 3"),
    (lambda: prove.cast(None, "e4m3"), "f: expected a function, got None"),
    (lambda: prove.cast(len, None), "format: expected one of"),
    (lambda: prove.cast(len, "e4m3", overflow="inf"), "overflow: expected None or nan, saturate of e4m3, got 'inf'"),
    (lambda: prove.cast(len, "e5m2", overflow="nan"), "overflow: expected None or inf, saturate of e5m2, got 'nan'"),
    (lambda: prove.cast(len, "int8", overflow="nan"), "overflow: expected None or saturate of int8, got 'nan'"),
    (lambda: prove.cast(len, "e4m3", layouts="no"), "layouts: expected True or False, got 'no'"),
    (lambda: prove.cast(len, "e4m3", what=3), "what: expected a text, got 3"),
    (lambda: prove.scaled_mm(len, size=(0, 48), like="numpy"), "size[0]: expected an integer from 1 to 1048576, got 0"),
    (lambda: prove.scaled_mm(len, size=(32,), like="numpy"), "size: expected M and N, got (32,)"),
    (lambda: prove.scaled_mm(len, ks=(), like="numpy"), "ks: expected a list of integers, got ()"),
    (lambda: prove.scaled_mm(len, ks=(16.5,), like="numpy"), "ks[0]: expected an integer from 1 to 1048576, got 16.5"),
    (lambda: prove.scaled_mm(len, rule="yes", like="numpy"), "rule: expected True or False, got 'yes'"),
    (lambda: prove.scaled_mm(len, sums=[], like="numpy"), "sums: expected one of None f32 fast promoted, got []"),
])
def test_arguments_are_named(call, words):
    with pytest.raises(octet.Error, match=re.escape(words)):
        call()


def test_refusal_is_no_fault():
    def f(x):
        raise TypeError("no such type")
    result = prove.cast(f, "e4m3")
    assert not result and result.first is None and result.skipped == "TypeError: no such type" and result.cases == 0


def test_difference_stays_where_the_stack_refuses_smaller_inputs():
    def f(x):
        if len(x) < 1000:
            raise ValueError("too short")
        return formats.encode(np.where(np.abs(x) < 1 / 16, np.copysign(np.float32(0), x), x), "e4m3")
    result = prove.cast(f, "e4m3")
    assert not result and not result.skipped and result.first.input == "0x3d000000 = 0.03125" and result.first.got == "0 (0x00)"


def test_refusal_of_some_inputs_is_told():
    def f(x):
        if len(x) < 8:
            raise ValueError("too short")
        return formats.encode(x, "e4m3")
    result = prove.cast(f, "e4m3")
    assert result and not result.skipped and "not taken: length 7: ValueError: too short" in result.choices
    assert not any("length 8" in choice for choice in result.choices)


def test_refusal_of_a_size_leaves_the_others():
    def f(a, b, scale_a, scale_b):
        if a.shape[1] == 32 and not np.isnan(formats.decode(b, "e4m3")).any():
            raise ValueError("K 32")
        return planted.lost_columns(a, b, scale_a, scale_b) if a.shape[1] == 4096 else planted.product(a, b, scale_a, scale_b)
    result = prove.scaled_mm(f, like="numpy", ks=(32, 4096))
    assert "4096" in result.first.case and "not taken: K 32: ValueError: K 32" in result.choices


def test_packages_that_are_missing_are_no_fault(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(octet.Error, match="expected the package ml_dtypes"):
        prove.cast(lambda x: x, "e4m3", "bf16")


def test_results_of_other_shapes_and_types_are_faults():
    for result in (prove.cast(lambda x: None, "e4m3"), prove.quantizer(lambda x: 1),
                   prove.quantizer(lambda x: (formats.encode(x, "bf16"), np.float32([1]))),
                   prove.quantizer(lambda x: (formats.encode(x, "e4m3"), np.ones(7, np.float32))),
                   prove.scaled_mm(lambda a, b, s, t: np.zeros((1, 1), np.float32), like="numpy")):
        assert not result and not result.skipped and result.first.expected == "its shape and type"
        assert result.first.got.startswith("[prove] expected")


def test_wrong_shape_and_width_are_faults():
    assert "shape" in prove.cast(lambda x: formats.encode(x, "e4m3")[1:], "e4m3").first.got
    assert "1 bytes each" in prove.cast(lambda x: formats.encode(x, "bf16"), "e4m3").first.got


@pytest.mark.parametrize("given", [np.complex64(1), "a", np.datetime64(1, "s")])
def test_arrays_of_other_than_real_numbers_are_a_difference(given):
    for proof in (lambda: prove.cast(lambda x: np.full(x.shape, given), "e4m3"),
                  lambda: prove.quantizer(lambda x: (np.zeros(x.shape, np.uint8), np.full(1, given))),
                  lambda: prove.scaled_mm(lambda a, b, *_: np.full((len(a), len(b)), given), like="numpy")):
        result = proof()
        assert not result and "expected an array of numbers, got" in result.first.got


def test_one_by_one_groups_are_held():
    assert prove.quantizer(lambda x: tuple(formats.quantize(x, "e4m3", "1x1")), "e4m3", "1x1", seconds=1)


@pytest.mark.parametrize("device, words", [("gpu", "device: expected cpu, cuda or cuda:N, got 'gpu'"), ("meta", "got 'meta'"), ("cuda:99", "got 'cuda:99'"),
                                           (None, "device: expected a text, got None")])
def test_devices_that_are_not_there_are_named(device, words):
    pytest.importorskip("torch")
    with pytest.raises(octet.Error, match=words):
        prove.cast(len, "e4m3", like="torch", device=device)


def adamw(params, **options):
    import torch
    return torch.optim.AdamW(params, **options)


def moments(optimizer, p):
    return optimizer.state[p]["exp_avg"], optimizer.state[p]["exp_avg_sq"]


@pytest.mark.parametrize("given, words", [
    ({"make": 3}, "make: expected a function, got 3"),
    ({"moments": 3}, "moments: expected a function, got 3"),
    ({"stored": ("e4m3", "e4m3")}, "stored: expected `moments` beside it"),
    ({"stored": ("e4m3",), "moments": moments}, "stored: expected formats of m and v, got ['e4m3']"),
    ({"stored": ("f32", "e4m3"), "moments": moments}, "stored: expected one of"),
    ({"stored": ("bf16", "bf16"), "moments": moments}, "stored: expected one of"),
    ({"stored": ("e4m3", "e4m3"), "moments": moments, "group": 3, "shards": False}, "group: expected a divisor of the 16384 elements of [64, 256], got 3"),
    ({"shape": (64,)}, "shape: expected rows and columns, got (64,)"),
    ({"shape": (0, 4)}, "shape[0]: expected an integer"),
    ({"shape": (3, 5)}, "shards: expected False, or a shape whose upper half is whole groups of 256 elements, got [3, 5]"),
    ({"group": 0}, "group: expected an integer of 1 or more, got 0"),
    ({"dtype": "float64"}, "dtype: expected one of float32 bfloat16 float16, got 'float64'"),
    ({"shards": None}, "shards: expected True or False, got None"),
])
def test_what_an_optimizer_is_asked_for_is_named(given, words):
    pytest.importorskip("torch")
    with pytest.raises(octet.Error, match=re.escape(words)):
        prove.optimizer(**{"make": adamw, **given})


@pytest.mark.parametrize("given, words", [
    ({"make": lambda params, **options: None}, "expected an optimizer with step, state_dict and load_state_dict, got NoneType"),
    ({"moments": lambda optimizer, p: None}, "moments: expected m and v of shape (8, 64), got TypeError"),
    ({"moments": lambda optimizer: 1}, "moments: expected m and v of shape (8, 64), got TypeError"),
    ({"moments": lambda optimizer, p: (p, p[:1])}, "expected moments m and v of shape (8, 64)"),
])
def test_moments_that_cannot_be_read_are_a_difference(given, words):
    pytest.importorskip("torch")
    result = prove.optimizer(**{"make": adamw, "shape": (8, 64), **given})
    assert not result and words in result.first.got


def test_moments_may_be_arrays():
    pytest.importorskip("torch")
    result = prove.optimizer(adamw, moments=lambda *given: [one.numpy() for one in moments(*given)], shape=(8, 64))
    assert result and result.cases > 4 * 8 * 64
