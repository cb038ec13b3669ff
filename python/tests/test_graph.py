"""octet.graph: built, differentiated, scaled and run; against NumPy."""

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

import octet
from octet import graph


def mlp(g, rows=8, width=16, hidden=32):
    x, up, down = g.input("x", [rows, width]), g.parameter("up", [hidden, width]), g.parameter("down", [width, hidden])
    h = g.gelu(g.at(0, "up").gemm(x, up, trans_b=True, role="forward"))
    y = g.at(0, "down").gemm(h, down, trans_b=True, role="forward")
    g.output("y", y)
    g.output("loss", g.reduce_sum(y * y, axes=[0, 1]))
    return g


def arrays(seed=1, rows=8, width=16, hidden=32):
    random = np.random.default_rng(seed)
    return {"x": random.standard_normal((rows, width), dtype=np.float32),
            "up": random.standard_normal((hidden, width), dtype=np.float32) / 4,
            "down": random.standard_normal((width, hidden), dtype=np.float32) / 4}


def test_values_and_gradients_are_numpys():
    g = graph.Graph("product")
    x, w = g.input("x", [4, 3]), g.parameter("w", [5, 3])
    y = g.gemm(x, w, trans_b=True)
    assert y.shape == (4, 5) and y.dtype == "real"
    g.output("loss", g.reduce_sum((2 - y) * y / 4.0 + 1, axes=[0, 1]))
    a = np.random.default_rng(0).standard_normal((4, 3))
    b = np.random.default_rng(1).standard_normal((5, 3))
    out = g.passes("autodiff", "simplify").run(x=a, w=b)
    a, b = a.astype(np.float32).astype(float), b.astype(np.float32).astype(float)
    product = a @ b.T
    assert np.allclose(out["loss"], ((2 - product) * product / 4 + 1).sum(), rtol=1e-5)
    assert out["grad:w"].dtype == np.float32
    assert np.allclose(out["grad:w"], ((2 - 2 * product) / 4).T @ a, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("passes", [(), ("bf16",), ("fp16",)])
def test_without_rows_gradients_are_zeros(passes, monkeypatch):
    """Of what is added up over rows there is nothing: results are written all the same."""
    def full(shape, dtype=float):
        array = np.ones(shape, dtype)
        array.reshape(-1).view(np.uint8)[:] = 0xAB
        return array
    monkeypatch.setattr(graph.np, "empty", full)
    g = graph.Graph()
    x, index = g.input("x", [0, 8]), g.input("index", [0], dtype="i32")
    w = {name: g.parameter(name, shape) for name, shape in (("rms", [8]), ("ln", [8]), ("ln_bias", [8]), ("bias", [8]), ("linear", [8, 8]),
                                                            ("table", [4, 8]), ("product", [0, 8]))}
    y = g.rms_norm(x, w["rms"])[0] + g.layer_norm(x, w["ln"], w["ln_bias"])[0] + g.bias_add(x, w["bias"]) + g.gemm(x, w["linear"])
    y = y + g.embedding(w["table"], index) + g.gather(w["table"], index) + w["product"]
    g.output("loss", g.reduce_sum(y, axes=[0, 1]) + g.reduce_sum(g.column_sum(y), axes=[0]))
    step = g.passes("autodiff", "simplify")
    arrays = {"x": np.zeros((0, 8), np.float32), "index": np.zeros(0, np.int32), **{name: np.ones(v.shape, np.float32) for name, v in w.items()}}
    for typed in (step.passes(*passes), *(() if passes else (step.scalify(),))):
        for name, array in typed.run(arrays).items():
            assert not array.any(), (name, array)


def test_the_text_is_the_program_s_and_comes_back():
    g = mlp(graph.Graph("mlp"))
    text = str(g)
    assert text.startswith('graph "mlp" phase logical\n') and '@ layer 0, forward, "down"' in text
    assert str(graph.Graph.parse(text)) == text
    # Types that are left out are inferred.
    short = 'graph "g" phase logical\n%0 = input batch "x" : real[2,3]\n%5 = exp(%0)\n%7 = reduce_sum(%5) {axes = [1]}\noutput "y" %7\n'
    assert graph.Graph.parse(short).outputs["y"].shape == (2,)
    with pytest.raises(octet.Error, match=r"graph:3:9: .*add. expected 2 operands, got 1"):
        graph.Graph.parse(short.replace("exp(%0)", "add(%0)"))


def test_scalify_keeps_values_to_the_bit_and_tells_scales():
    step = mlp(graph.Graph()).passes("autodiff", "simplify")
    plain = step.run(arrays())
    for rounding in ("predicted", "nearest", "paper"):
        scaled = step.scalify(rounding)
        assert len(scaled.scales) > 10 and any(scale != 0 for scale in scaled.scales)
        assert scaled.scale_of("loss") == 0  # outputs are values again
        for name, array in scaled.run(arrays()).items():
            assert np.array_equal(array, plain[name]), (rounding, name)
    with pytest.raises(octet.Error, match="scalify"):
        step.scale_of("loss")
    with pytest.raises(octet.Error, match="predicted, nearest, paper, up"):
        step.scalify("upwards")
    with pytest.raises(octet.Error, match="'z' is no input"):
        step.scalify(input_rms={"z": 1.0})


def test_scales_keep_gradients_in_fp16():
    small = graph.Graph()
    y = small.gemm(small.input("x", [8, 16]), small.parameter("w", [4, 16]), trans_b=True)
    small.output("loss", small.reduce_sum(y * y * 2.0**-30, axes=[0, 1]))
    step = small.passes("autodiff", "simplify")
    given = {"x": arrays()["x"], "w": arrays()["up"][:4]}
    exact = step.run(given)["grad:w"]
    plain, scaled = step.passes("fp16").run(given)["grad:w"], step.passes("scalify_fp16").run(given)["grad:w"]
    assert not plain.any()
    assert np.abs(scaled - exact).max() < 2e-3 * np.abs(exact).max()


# With a scale taken in the step, predicted, in groups of 128 and of 32.
@pytest.mark.parametrize("recipe, most", [("bf16", 0.01), ("bf16 quantize_linears", 0.1), ("scalify_fp8", 0.1), ("fp8_block", 0.1),
                                          ("mxfp8", 0.1)])
def test_recipes_round_as_they_say(recipe, most):
    step = mlp(graph.Graph(), 32, 64, 64).passes("autodiff", "simplify")
    given = arrays(2, 32, 64, 64)
    exact, rounded = step.run(given), step.passes(*recipe.split()).run(given)
    error = np.linalg.norm(rounded["grad:up"] - exact["grad:up"]) / np.linalg.norm(exact["grad:up"])
    assert most / 10 < error < most


def test_states_are_arrays_too():
    step = mlp(graph.Graph(), 32, 64, 64).passes("autodiff", "simplify", "fp8_linear")
    given = arrays(2, 32, 64, 64)
    with pytest.raises(octet.Error, match="'copy_scale:layers.0.up' of f32.*, which a run keeps between its steps"):
        step.run(given)
    scales = {f"copy_scale:layers.0.{name}": np.float32(np.abs(given[name]).max() / 448) for name in ("up", "down")}
    current = mlp(graph.Graph(), 32, 64, 64).passes("autodiff", "simplify", "bf16", "quantize_linears").run(given)
    loss = float(step.run({**given, **scales})["loss"])
    assert abs(loss - current["loss"]) < 1e-2 * abs(loss)


def test_a_function_runs_again_and_has_types():
    function = mlp(graph.Graph()).passes("bf16").compile(threads=1)
    assert function.graph.phase == "lowered" and function.graph.inputs["x"].dtype == "bf16"
    first, second = function(arrays(3)), function(arrays(3))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(function(arrays(4))["y"], first["y"])


def test_threads_wait_for_one_another():
    function = mlp(graph.Graph(), 256, 256, 256).compile(threads=1)
    given = [arrays(seed, 256, 256, 256) for seed in (3, 4)]
    expected = [function(one)["y"] for one in given]

    def all_equal(i):
        return all(np.array_equal(function(given[i])["y"], expected[i]) for _ in range(50))
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(all_equal, (0, 1))) == [True, True]


def test_numbers_of_any_type_are_lifted():
    g = graph.Graph()
    x = g.input("x", (np.int64(2), 3))
    g.output("y", np.float32(2) * x + np.int64(1) - Fraction(1, 2))
    assert g.run(x=np.ones((2, 3), ">f4"))["y"].tolist() == [[2.5] * 3] * 2


def test_ops_with_several_results_and_optional_operands():
    g = graph.Graph()
    x, w = g.input("x", [4, 8]), g.parameter("w", [8])
    y, rstd = g.rms_norm(x, w, eps=0.0)
    only, _ = g.rms_norm(x, eps=0.0)
    g.output("y", y)
    g.output("only", only)
    a, b = np.random.default_rng(0).standard_normal((4, 8)), np.arange(8.0)
    out = g.run(x=a, w=b)
    assert np.allclose(out["only"], a / np.sqrt((a * a).mean(1, keepdims=True)), rtol=1e-5)
    assert np.allclose(out["y"], out["only"] * b, rtol=1e-5)
    assert rstd.shape == (4,)


def test_mistakes_are_one_line():
    g = graph.Graph()
    x = g.input("x", [2, 3])
    before = str(g)
    with pytest.raises(octet.Error, match="add"):
        g.op("add", x, g.input("z", [3, 2]))
    with pytest.raises(octet.Error, match="expected an attribute of this op"):
        g.exp(x, axis=1)
    with pytest.raises(octet.Error, match="expected an op"):
        g.op("expp", x)
    with pytest.raises(octet.Error, match="one of another graph"):
        g.exp(graph.Graph().input("x", [2]))
    with pytest.raises(octet.Error, match="expected a value of this graph, got float"):
        g.exp(1.0)
    with pytest.raises(AttributeError, match="no op 'expp'"):
        g.expp(x)
    with pytest.raises(octet.Error, match="expected a dtype, got f33"):
        g.input("y", [1], dtype="f33")
    assert "exp" not in str(g) and str(g).startswith(before.splitlines()[0])
    g.output("y", g.exp(x))
    with pytest.raises(octet.Error) as caught:
        g.run(x=np.zeros((3, 2), np.float32), w=np.zeros(1))
    for part in ("expected an array 'z'", "'x': expected shape [2,3]", "'w' is no input"):
        assert part in str(caught.value)
    with pytest.raises(octet.Error, match="fp33"):
        g.passes("fp33")
    with pytest.raises(octet.Error, match="given twice: x, z"):
        g.run({"x": 1, "y": 2, "z": 3}, z=4, x=5)
    scaled = g.scalify()
    with pytest.raises(octet.Error, match="was added after scalify"):
        scaled.scale_of(scaled.exp(scaled.inputs["x"]))


@pytest.mark.parametrize("call, words", [
    (lambda g, x: np.ones((2, 3)) * x, "expected a value of this graph or a number, got ndarray"),
    (lambda g, x: x * np.ones((2, 3)), "expected a value of this graph or a number, got ndarray"),
    (lambda g, x: x + "1", "expected a value of this graph or a number, got str"),
    (lambda g, x: x / 1j, "expected a value of this graph or a number, got complex"),
    (lambda g, x: g.reduce_sum(x, axes=[0.5]), "axes: expected whole numbers, got .0.5."),
    (lambda g, x: g.input("y", [2.0]), "shape of 'y': expected whole numbers, got .2.0."),
    (lambda g, x: g.input("y", 2), "shape of 'y': expected whole numbers, got 2"),
    (lambda g, x: g.at(0.5), "layer: expected whole numbers, got .0.5."),
    (lambda g, x: g.at(-2), "layer: expected an integer from -1 to 2147483647, got -2"),
    (lambda g, x: g.at(0, 'a"b'), "module: expected a name in one line without quotes"),
    (lambda g, x: g.at(0, None), "module: expected a text, got None"),
    (lambda g, x: g.input("y", [-1]), "y: expected no negative dimension, got .-1."),
    (lambda g, x: g.input("y", [2**70]), "shape of 'y': expected whole numbers, got"),
    (lambda g, x: g.input(3, [1]), "name: expected a text, got 3"),
    (lambda g, x: g.input("y", [1], dtype=np.float32), "dtype: expected a text, got <class 'numpy.float32'>"),
    (lambda g, x: g.input("y", [1], kind=None), "kind: expected a text, got None"),
    (lambda g, x: graph.Graph(3), "name: expected a text, got 3"),
    (lambda g, x: graph.Graph.parse(b""), "text: expected a text, got b''"),
    (lambda g, x: g.output(None, x), "name: expected a text, got None"),
    (lambda g, x: g.drop_output(3), "name: expected a text, got 3"),
    (lambda g, x: g.debug_print(3, x), "name: expected a text, got 3"),
    (lambda g, x: g.delayed_rescale(x, "s", norm=2), "norm: expected a text, got 2"),
    (lambda g, x: g.axis_rescale(x, 1), "granularity: expected a text, got 1"),
    (lambda g, x: g.periodic_rescale(x, "s", 1.5), "calls: expected an integer from 1 to 16777216, got 1.5"),
    (lambda g, x: g.custom_scale(None, [x], lambda s: s), "f: expected a function, got None"),
    (lambda g, x: g.custom_scale(lambda a: a, x, lambda s: s), "inputs: expected a list of values, got %0"),
    (lambda g, x: g.custom_scale(lambda a: a, [], lambda: x), "inputs: expected a list of values, got .."),
    (lambda g, x: g.custom_scale(lambda a: a, [x], lambda s: s, lambda s: s), "gradients: expected a list, got"),
    (lambda g, x: g.op(None, x), "op: expected a text, got None"),
    (lambda g, x: g.gemm(x, x, trans_b=1), r"\[gemm\] trans_b: expected true or false, got '1'"),
    (lambda g, x: g.gemm(x, x, trans_b=None), "trans_b: expected a number, True or False, .* got None"),
    (lambda g, x: g.gemm(x, x, trans_b=True, role="forward}"), "role: expected .* a word, got 'forward}'"),
    (lambda g, x: g.gemm(x, x, trans_c=True), r"\[gemm\] trans_c: expected an attribute of this op"),
    (lambda g, x: g.fill(shape=[2], value="3"), "value: expected a number, .* got '3'"),
    (lambda g, x: g.rms_norm(x, eps=-1.0), r"\[rms_norm\] eps must be finite, 0 or more, got -1"),
    (lambda g, x: g.rms_norm(x, eps=float("nan")), r"\[rms_norm\] eps must be finite, 0 or more, got nan"),
    (lambda g, x: x * 10**400, "or a number that float64 holds"),
    (lambda g, x: bool(x == x and x), "expected a number for True or False, got a value of a graph"),
    (lambda g, x: g.passes(["autodiff"]), r"passes.0.: expected a text, got .'autodiff'."),
    (lambda g, x: g.passes("bf16").scalify(), "scalify: expected a graph in phase logical, before any recipe, got typed"),
    (lambda g, x: g.scalify(rounding=None), "rounding: expected a text, got None"),
    (lambda g, x: g.scalify(input_rms={"x": float("nan")}), r"input_rms\['x'\]: expected a finite number, got nan"),
    (lambda g, x: g.scalify(input_rms={"x": 1e9}), "input_rms: expected log2 from -149 to 128 of 'x', got 1000000000"),
    (lambda g, x: g.scalify(input_scales={"x": 1000}), r"input_scales\['x'\]: expected an integer from -126 to 126, got 1000"),
    (lambda g, x: g.scalify(scaled_inputs="x"), "scaled_inputs: expected a list of texts, got 'x'"),
    (lambda g, x: g.scalify(scaled_inputs=["x", "x"]), "scaled_inputs: expected each name once, got 'x' again"),
    (lambda g, x: g.scalify(granularities=["row"]), "granularities: expected a dict of names, got"),
    (lambda g, x: g.compile(debug=3), "debug: expected a function, got 3"),
    (lambda g, x: g.run([1]), "arrays: expected a dict of names, got .1."),
    (lambda g, x: g.run({3: 1}), "arrays: expected a dict of names, got .3: 1."),
    (lambda g, x: graph.next_inputs(3), "outputs: expected a dict of names, got 3"),
    (lambda g, x: graph.ScaledArray(None), "data: expected floats, got object"),
    (lambda g, x: graph.ScaledArray([1, 2]), "data: expected floats, got int64"),
    (lambda g, x: graph.ScaledArray([1.0], "2"), "scale: expected a power of two that float32 has, got '2'"),
    (lambda g, x: graph.ScaledArray([1.0], 1j), "scale: expected a power of two that float32 has, got 1j"),
    (lambda g, x: graph.ScaledArray.of([1j]), "expected an array of numbers, got .1j."),
    (lambda g, x: graph.ScaledArray.of([1.0], "int8"), "dtype: expected a type of floats that NumPy has, got 'int8'"),
    (lambda g, x: graph.ScaledArray.of([1.0], None), "dtype: expected a type of floats that NumPy has, got None"),
    (lambda g, x: graph.ScaledArray.of([1.0], granularity=[]), "granularity: expected a text, got .."),
])
def test_what_is_no_number_is_named(call, words):
    g = graph.Graph()
    with pytest.raises(octet.Error, match=words):
        call(g, g.input("x", [2, 3]))


def test_the_scale_of_an_input_is_taken_in_any_order():
    g = graph.Graph()
    g.output("y", g.input("x", [2]) * 1.0)
    f = g.scalify(scaled_inputs=["x"]).compile()
    x, scale = np.float32([1, 2]), np.float32(4)
    for given in ({"x": x, "x.scale": scale}, {"x.scale": scale, "x": x}, {"x": graph.ScaledArray(x, 4.0)}):
        assert f(given)["y"].tolist() == [4, 8]
    with pytest.raises(octet.Error, match="given twice: the scale of 'x', and 'x.scale'"):
        f({"x": graph.ScaledArray(x, 4.0), "x.scale": scale})
    with pytest.raises(ValueError, match="copy: expected None or True, got False"):
        np.asarray(graph.ScaledArray(x, 4.0), copy=False)
