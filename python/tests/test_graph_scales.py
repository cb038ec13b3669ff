"""Scale propagation on random functions: in f32, values and gradients are those of the plain function to the bit.

OCTET_GRAPH_CASES: how many functions; the suite's own number keeps it short. How often each op is drawn is printed. Not drawn: cast_in, which
rounds data at their scale, so that its values depend on scales; delayed_rescale and custom_scale, which need arguments of their own.
"""

import os
from collections import Counter

import numpy as np
import pytest

import octet
from octet import graph

ROWS, WIDTH, CLASSES = 8, 16, 16
CASES = int(os.environ.get("OCTET_GRAPH_CASES", "60"))
OPS = 20


class Function:
    """A random function of arrays x [8, 16], w [16, 16], v [16], ids and positions [8]: about twenty ops, and a loss."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.drawn = Counter()
        self.g = g = graph.Graph(f"random{seed}")
        self.values = [g.input("x", [ROWS, WIDTH]), g.parameter("p", [ROWS, WIDTH])]
        self.matrices = [g.parameter("w", [WIDTH, WIDTH])]
        self.rows = [g.parameter("v", [WIDTH]), g.parameter("u", [WIDTH])]
        self.ids, self.positions = g.input("ids", [ROWS], dtype="i32"), g.input("positions", [ROWS], dtype="i32")
        makers = [name for name in dir(self) if name.startswith("make_")]
        for _ in range(OPS):
            self.values.append(getattr(self, makers[self.random.integers(len(makers))])())
        # The last values reach the loss, so that many ops are differentiated.
        total = self.values[-1]
        for value in self.values[-4:-1]:
            total = self.op("add", total, value)
        g.output("value", total)
        if self.random.integers(2):
            loss = self.op("reduce_sum", self.op("mul", total, total), axes=[0, 1])
        else:
            inv_n = g.op("fill", shape=[], value=0.125)
            loss = self.op("cross_entropy", self.op("tanh", total), self.ids, inv_n)[0]
        g.output("loss", loss)

    def op(self, name, *operands, **named):
        self.drawn[str(name)] += 1
        return self.g.op(str(name), *operands, **named)

    def any(self):
        # Late values more often, or most of a function would not matter.
        n = len(self.values)
        return self.values[n - 1 - min(int(self.random.exponential(3)), n - 1)]

    def row(self):
        return self.rows[self.random.integers(len(self.rows))]

    def bounded(self):
        return self.op("tanh", self.any())

    def positive(self):
        return self.op("abs", self.bounded()) + 0.25

    def make_unary(self):
        name = self.random.choice(["neg", "abs", "sign", "tanh", "erf", "logistic", "sin", "cos", "stop_gradient", "cast"])
        return self.op(name, self.any())

    def make_exp(self):
        return self.op("exp", self.bounded())

    def make_log(self):
        return self.op("log", self.positive())

    def make_root(self):
        return self.op(self.random.choice(["sqrt", "rsqrt"]), self.positive())

    def make_square(self):
        return self.op("square", self.bounded())

    def make_sum(self):
        return self.op(self.random.choice(["add", "sub"]), self.any(), self.any())

    def make_product(self):
        return self.op("mul", self.any(), self.bounded())

    def make_quotient(self):
        return self.op("div", self.any(), self.positive())

    def make_extremum(self):
        return self.op(self.random.choice(["maximum", "minimum"]), self.any(), self.any())

    def make_select(self):
        comparisons = ["less", "equal", "not_equal", "less_equal", "greater", "greater_equal"]
        condition = self.op(self.random.choice(comparisons), self.any(), self.any())
        return self.op("select", condition, self.any(), self.any())

    def make_rescale(self):
        return self.op("rescale", self.any(), self.g.op("fill", shape=[], value=float(2.0 ** self.random.integers(-3, 4))))

    def make_scale(self):
        name = self.random.choice(["set_scale", "rebalance"])
        return self.op(name, self.any(), log2=int(self.random.integers(-4, 5)))

    def make_end_of_scaling(self):
        condition = self.op("is_finite", self.any())
        return self.op("select", condition, self.op("stop_scaling", self.any()), self.any())

    def make_scale_of_run_time(self):
        size = self.op("stop_gradient", self.op("reduce_max", self.positive(), axes=[0, 1]))
        direction = str(self.random.choice(["forward", "backward"]))
        return self.op("set_scale", self.any(), size, log2=int(self.random.integers(-3, 4)), direction=direction)

    def make_power(self):
        if self.random.integers(2):
            return self.op("integer_pow", self.bounded(), n=int(self.random.integers(0, 5)))
        return self.op("integer_pow", self.positive(), n=int(self.random.integers(-3, 0)))

    def make_reverse(self):
        return self.op("reverse", self.any(), axes=[[0], [1], [1, 0]][self.random.integers(3)])

    def make_window(self):
        reduction = str(self.random.choice(["sum", "max", "min"]))
        return self.op("reduce_window", self.any(), reduction=reduction, window=[3, 2], stride=[1, 1], low=[1, 1], high=[1, 0])

    def make_product_of_rows(self):
        return self.op("broadcast", self.op("reduce_prod", self.bounded(), axes=[0]), shape=[ROWS, WIDTH], axes=[1])

    def make_place(self):
        name = self.random.choice(["argmin", "argmax"])
        return self.op("embedding", self.matrices[0], self.op(name, self.any(), axis=1))

    def make_batched_gemm(self):
        a, b = (self.op("reshape", self.bounded(), shape=[2, ROWS // 2, WIDTH]) for _ in range(2))
        scores = self.op("batched_gemm", a, b, trans_b=True, factor=0.3)
        c = {"c": self.op("reshape", self.any(), shape=[2, ROWS // 2, WIDTH])} if self.random.integers(2) else {}
        return self.op("reshape", self.op("batched_gemm", scores, b, **c), shape=[ROWS, WIDTH])

    def make_measured(self):
        return self.op("dynamic_rescale", self.any(), norm=str(self.random.choice(["max", "l1", "l2"])))

    def make_scales_of_rows_or_columns(self):
        self.drawn["axis_rescale"] += 1
        granularity, norm = self.random.choice(["row", "channel"]), self.random.choice(["max", "l1", "l2"])
        return self.g.axis_rescale(self.any(), str(granularity), norm=str(norm))

    def make_power_of_two(self):
        total = self.op("reduce_max", self.positive(), axes=[0, 1])
        return self.op("mul", self.any(), self.op("broadcast", self.op("power_of_two", self.op("stop_gradient", total)), shape=[ROWS, WIDTH], axes=[]))

    def make_reduction(self):
        axis = int(self.random.integers(2))
        name = self.random.choice(["reduce_sum", "reduce_max", "reduce_min"])
        return self.op("broadcast", self.op(name, self.any(), axes=[axis]), shape=[ROWS, WIDTH], axes=[1 - axis])

    def make_move(self):
        turned = self.op("transpose", self.any(), perm=[1, 0])
        return self.op("reshape", self.op("reshape", turned, shape=[ROWS * WIDTH]), shape=[ROWS, WIDTH])

    def make_pad(self):
        at = int(self.random.integers(1, ROWS - 1))
        part = self.op("slice", self.any(), start=[0, 0], limit=[at, WIDTH], stride=[1, 1])
        return self.op("pad", part, low=[ROWS - at, 0], high=[0, 0], interior=[0, 0], value=0.0)

    def make_concatenation(self):
        at = int(self.random.integers(1, ROWS - 1))
        first = self.op("slice", self.any(), start=[0, 0], limit=[at, WIDTH], stride=[1, 1])
        second = self.op("slice", self.any(), start=[at, 0], limit=[ROWS, WIDTH], stride=[1, 1])
        return self.op("concatenate", first, second, axis=0)

    def make_gemm(self):
        c = {"c": self.any()} if self.random.integers(2) else {}
        return self.op("gemm", self.bounded(), self.matrices[0], trans_b=bool(self.random.integers(2)), **c)

    def make_bias(self):
        return self.op("bias_add", self.any(), self.row())

    def make_norm(self):
        if self.random.integers(2):
            return self.op("rms_norm", self.any(), self.row())[0]
        return self.op("layer_norm", self.any(), self.row(), self.row())[0]

    def make_activation(self):
        if self.random.integers(2):
            return self.op("gelu", self.any())
        return self.op("gated_act", self.bounded(), self.any())

    def make_lookup(self):
        return self.op(self.random.choice(["embedding", "gather"]), self.matrices[0], self.ids)

    def make_scatter(self):
        if self.random.integers(2):
            table = self.op("scatter_add", self.any(), self.ids, rows=WIDTH)
        else:  # itself a gradient, which has none
            table = self.op("embedding_grad", self.op("stop_gradient", self.any()), self.ids, rows=WIDTH)
        return self.op("gather", table, self.ids)

    def make_column_sum(self):
        return self.op("bias_add", self.any(), self.op("column_sum", self.bounded()))

    def make_rope(self):
        return self.op("rope", self.any(), self.positions, heads=2, head_dim=8)

    def make_attention(self):
        q, k, v = self.bounded(), self.bounded(), self.any()
        return self.op("attention", q, k, v, batch=1, q_len=ROWS, kv_len=ROWS, heads=2, kv_heads=2, head_dim=8, scale=0.5)[0]

    def arrays(self):
        random = self.random
        return {"x": random.standard_normal((ROWS, WIDTH), dtype=np.float32), "p": random.standard_normal((ROWS, WIDTH), dtype=np.float32),
                "w": random.standard_normal((WIDTH, WIDTH), dtype=np.float32) / 4, "v": random.standard_normal(WIDTH, dtype=np.float32),
                "u": random.standard_normal(WIDTH, dtype=np.float32), "ids": random.integers(0, CLASSES, ROWS),
                "positions": np.arange(ROWS)}


def same(a, b):
    """Equal, apart from numbers that f32 has at less than its precision: there the scale decides which bits are lost."""
    tiny = (np.abs(a) < 2.0**-120) & (np.abs(b) < 2.0**-120)
    return np.array_equal(np.where(tiny, 0, a), np.where(tiny, 0, b), equal_nan=True)


def test_random_functions_keep_their_bits():
    drawn, n_scaled = Counter(), 0
    for seed in range(CASES):
        function = Function(seed)
        step = function.g.passes("autodiff", "simplify")
        arrays = function.arrays()
        plain = step.run(arrays)
        assert "grad:w" in plain
        rounding = ("predicted", "nearest", "paper", "up")[seed % 4]
        rms = {name: float(function.random.integers(-4, 5)) for name in ("x", "p", "w", "v", "u")}
        scaled = step.scalify(rounding, input_rms=rms)
        n_scaled += sum(scale != 0 for scale in scaled.scales)
        for name, array in scaled.run(arrays).items():
            assert same(array, plain[name]), (seed, rounding, name, function.drawn)
        drawn += function.drawn
    print(", ".join(f"{name} {n}" for name, n in sorted(drawn.items())), f"; {n_scaled} values with a scale other than 1")
    assert n_scaled > 3 * CASES
    if CASES >= 1000:
        assert min(drawn.values()) >= 20, drawn


@pytest.mark.parametrize("seed", range(3))
def test_an_input_s_scale_changes_no_value(seed):
    function = Function(1000 + seed)
    step, arrays = function.g.passes("autodiff", "simplify"), function.arrays()
    plain = step.run(arrays)
    scaled = step.scalify(input_scales={"x": 3, "p": -2})
    given = {**arrays, "x": arrays["x"] * np.float32(2.0**-3), "p": arrays["p"] * np.float32(4)}
    for name, array in scaled.run(given).items():
        if name not in ("grad:p",):  # by the data that came in
            assert same(array, plain[name]), name


NARROW = {
    "iterations": lambda g, w: [w := w * (1.5 - w * w * 0.5) for _ in range(7)][-1],
    "squares": lambda g, w: [w := g.square(w * 8.0) / 64.0 for _ in range(9)][-1],
    "large numbers of zeros": lambda g, w: [w := w * 4.0 for _ in range(200)][-1],
    "a number without an inverse": lambda g, w: w * 1e-45 + w / 3e38,
    "quotients": lambda g, w: [w := w / 0.0625 * 0.0625 for _ in range(4)][-1],
    "products": lambda g, w: g.gemm(g.gemm(w * 2.0**70, w * 2.0**-10, trans_b=True), w * 2.0**-60) * 2.0**-20,
}


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("rounding", ["predicted", "nearest", "paper", "up"])
def test_scales_are_powers_of_two_that_f32_has(name, rounding):
    """Where a prediction leaves them, which a function's own values do not, values take its place."""
    g = graph.Graph()
    w = g.parameter("w", [5, 3])
    y = NARROW[name](g, w)
    g.output("y", y)
    g.output("loss", g.reduce_sum(y, axes=[0, 1]))
    step = g.passes("autodiff", "simplify")
    arrays = {"w": (np.random.default_rng(3).standard_normal((5, 3)) * 0.01 + 1).astype(np.float32) * (name != "large numbers of zeros")}
    expected, scaled = step.run(arrays), step.scalify(rounding)
    assert all(abs(scale) <= 126 for scale in scaled.scales)
    for output, array in scaled.run(arrays).items():
        vanishes = name == "iterations" and output == "grad:w"  # 1e-33, which flushes beside a scale of 2^93
        assert np.array_equal(array, expected[output]) or vanishes and np.abs(array - expected[output]).max() < 1e-20, output


@pytest.mark.parametrize("op", ["set_scale", "rebalance"])
@pytest.mark.parametrize("log2", [127, -127, 2**40])
def test_stated_scales_are_such_too(op, log2):
    g = graph.Graph()
    with pytest.raises(octet.Error, match=rf"\[{op}\] log2 must be from -126 to 126, got {log2}"):
        g.op(op, g.input("x", [2]), log2=log2)
