"""Scales of rows and of columns: through GEMMs and their gradients, as data and scale between calls, in FP16 where one scale loses rows."""

import numpy as np
import pytest

from octet import Error, graph

ROWS, WIDTH, OUT = 6, 8, 4


def linear(gives_y=True):
    """loss = sum(y^2), y = x w^T: x at a scale a row, w at one a row (its output channel)."""
    g = graph.Graph("linear")
    x, w = g.parameter("x", [ROWS, WIDTH]), g.parameter("w", [OUT, WIDTH])
    y = g.gemm(g.axis_rescale(x, "row"), g.axis_rescale(w, "row", norm="max"), trans_b=True)
    if gives_y:
        g.output("y", y)
    g.output("loss", g.reduce_sum(y * y, axes=[0, 1]))
    return g.passes("autodiff", "simplify")


def uneven(seed, log2=8):
    """Rows of x from 2^-log2 to 2^log2."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((ROWS, WIDTH)) * np.exp2(np.linspace(-log2, log2, ROWS))[:, None]
    return {"x": x.astype(np.float32), "w": random.standard_normal((OUT, WIDTH), dtype=np.float32)}


@pytest.mark.parametrize("rounding", ["predicted", "nearest", "paper", "up"])
def test_a_linear_and_both_its_gradients_keep_their_bits(rounding):
    step, arrays = linear(), uneven(0)
    plain, scaled = step.run(arrays), step.scalify(rounding).run(arrays)
    assert set(plain) == {"y", "loss", "grad:x", "grad:w"}
    for name, array in plain.items():
        assert np.array_equal(scaled[name], array), name


def test_inspect_shows_the_shapes_of_scales():
    assert linear().scalify().scale_shape_of("y") == ()  # an output is a value
    scaled = linear(gives_y=False).scalify()
    shapes = {shape for shape in scaled.scale_shapes if shape}
    assert shapes == {(ROWS, 1), (OUT, 1)}
    products = [line for line in scaled.inspect().splitlines() if f"real[{ROWS}, {OUT}]" in line and f"x [{ROWS}, 1]" in line]
    assert len(products) >= 3, scaled.inspect()  # y, its square, dy: by x's rows


def test_fp16_keeps_rows_that_one_scale_loses():
    g = graph.Graph()
    x, w = g.parameter("x", [ROWS, WIDTH]), g.parameter("w", [OUT, WIDTH])
    g.output("y", g.gemm(x, w, trans_b=True))
    arrays = uneven(1, log2=25)
    exact = arrays["x"].astype(np.float64) @ arrays["w"].T.astype(np.float64)
    error, scales = {}, {}
    for granularity in ("row", "tensor"):
        half = g.scalify(scaled_inputs=["x"], scaled_outputs=["y"], granularities={"x": granularity}).passes("fp16")
        y = half.run(x=graph.ScaledArray.of(arrays["x"], "float16", granularity), w=arrays["w"])["y"]
        assert y.dtype == np.float16
        scales[granularity] = np.shape(y.scale)
        error[granularity] = np.abs(np.asarray(y) - exact).max(1) / np.abs(exact).max(1)
    assert scales == {"row": (ROWS, 1), "tensor": ()}
    assert error["row"].max() < 2e-3
    assert error["tensor"][0] == 1  # 2^-50 of the largest row: gone


def test_columns_pass_where_rows_would_be_summed_over():
    g = graph.Graph()
    x, dy = g.input("x", [ROWS, WIDTH]), g.input("dy", [ROWS, OUT])
    g.output("dw", g.gemm(dy, x, trans_a=True))
    names = {"dw": (OUT, 1)}
    by_columns = g.scalify(scaled_inputs=["x", "dy"], scaled_outputs=["dw"], granularities={"x": "channel", "dy": "channel"})
    by_rows = g.scalify(scaled_inputs=["x", "dy"], scaled_outputs=["dw"], granularities={"x": "row", "dy": "row"})
    assert by_columns.scale_shape_of("dw") == names["dw"] and by_rows.scale_shape_of("dw") == ()
    random = np.random.default_rng(2)
    arrays = {"x": random.standard_normal((ROWS, WIDTH), dtype=np.float32), "dy": random.standard_normal((ROWS, OUT), dtype=np.float32)}
    expected = g.run(arrays)["dw"]
    for graph_of, granularity in ((by_columns, "channel"), (by_rows, "row")):
        scaled = {name: graph.ScaledArray.of(array, granularity=granularity) for name, array in arrays.items()}
        assert np.array_equal(np.asarray(graph_of.run(scaled)["dw"]), expected), granularity


def test_moves_and_lookups_take_scales_along():
    g = graph.Graph()
    x, ids = g.input("x", [ROWS, WIDTH]), g.input("ids", [5], dtype="i32")
    for name, value, shape in (("transposed", g.transpose(x, perm=[1, 0]), (1, ROWS)), ("reversed", g.reverse(x, axes=[0]), (ROWS, 1)),
                               ("part", g.slice(x, start=[1, 2], limit=[5, 8], stride=[2, 1]), (2, 1)), ("found", g.embedding(x, ids), (5, 1)),
                               ("sum", x + x, (ROWS, 1)), ("flat", g.reshape(x, shape=[ROWS * WIDTH]), ()),
                               ("total", g.reduce_sum(x, axes=[1]), ())):
        g.output(name, value)
        g.output(f"{name} is", g.fill(shape=list(shape) or [0], value=0.0))
    names = [name for name in g.outputs if not name.endswith(" is")]
    scaled = g.scalify(scaled_inputs=["x"], scaled_outputs=names, granularities={"x": "row"})
    arrays = {"x": uneven(3)["x"], "ids": np.array([3, 0, 5, 5, 1])}
    plain = g.run(arrays)
    given = {**arrays, "x": graph.ScaledArray.of(arrays["x"], granularity="row")}
    results = scaled.run(given)
    for name in names:
        shape = plain[f"{name} is"].shape
        assert scaled.scale_shape_of(name) == (() if shape == (0,) else shape), name
        assert np.array_equal(np.asarray(results[name]), plain[name]), name


def test_what_has_no_rows_or_columns_is_refused_by_name():
    g = graph.Graph()
    x, v = g.input("x", [ROWS, WIDTH]), g.input("v", [WIDTH])
    s = g.input("s", [WIDTH, 1])
    g.output("y", g.bias_add(x, v))
    for call, words in ((lambda: g.axis_rescale(v, "row"), r"axis_rescale: expected a matrix for a scale a row, got \[8\]"),
                        (lambda: g.axis_rescale(x, "block"), "expected one of tensor, row, channel, got block"),
                        (lambda: g.set_scale(x, s), r"\[set_scale\] scale must be \[\], or \[6,1\] or \[1,8\]"),
                        (lambda: g.rescale(x, v), r"\[rescale\] factor must be"),
                        (lambda: g.scalify(scaled_inputs=["v"], granularities={"v": "row"}), "expected a matrix"),
                        (lambda: g.scalify(granularities={"x": "row"}), "expected one of scaled_inputs, got 'x'"),
                        (lambda: graph.ScaledArray(np.ones((2, 3)), np.ones((3, 1))), r"expected a number, or \[R, 1\]"),
                        (lambda: graph.ScaledArray(np.ones((2, 3)), np.full((2, 1), 3.0)), "power of two"),
                        (lambda: graph.ScaledArray.of(np.ones(3), granularity="row"), "row or channel of a matrix")):
        with pytest.raises(Error, match=words):
            call()
    run = g.scalify(scaled_inputs=["x"], granularities={"x": "channel"}).compile()
    others = {"v": np.zeros(WIDTH), "s": np.ones((WIDTH, 1))}
    assert np.array_equal(run({**others, "x": np.ones((ROWS, WIDTH))})["y"], np.ones((ROWS, WIDTH)))
    with pytest.raises(Error, match=r"'x.scale': expected shape \[1,8\]"):
        run({**others, "x": graph.ScaledArray(np.ones((ROWS, WIDTH)), np.ones((ROWS, 1)))})
