"""Values as data and scale: held between calls, at scales of run time, with rules of one's own, printed."""

import numpy as np
import pytest
from test_examples import run_example

from octet import Error, graph


def update():
    """w' = w - g, g the gradient of sum((x w^T)^2) / 64, rescaled by its norm."""
    g = graph.Graph("update")
    x, w = g.input("x", [4, 8]), g.parameter("w", [3, 8])
    y = g.gemm(x, w, trans_b=True)
    g.output("loss", g.reduce_sum(y * y / 64, axes=[0, 1]))
    step = g.passes("autodiff", "simplify")
    step.output("next_w", step.dynamic_rescale(step.inputs["w"] - step.outputs["grad:w"], norm="l2"))
    step.drop_output("grad:w")
    return step


def test_states_keep_data_and_scale_between_calls():
    random = np.random.default_rng(0)
    step = update()
    step.debug_print("w", step.outputs["next_w"])
    printed = []
    plain, run = step.compile(debug=None), step.scalify(scaled_inputs=["w"], scaled_outputs=["next_w"]).compile(
        debug=lambda name, array: printed.append((name, array.scale)))
    value = random.standard_normal((3, 8), dtype=np.float32) * np.float32(40)
    state = graph.ScaledArray.of(value)
    assert state.scale in (32, 64) and np.array_equal(state, value)
    for _ in range(3):
        x = random.standard_normal((4, 8), dtype=np.float32)
        expected, outputs = plain(x=x, w=value), run(x=x, w=state)
        value, state = expected["next_w"], outputs["next_w"]
        assert isinstance(state, graph.ScaledArray) and np.array_equal(state, value)
        assert outputs["loss"] == expected["loss"] and set(expected) == {"loss", "next_w"}
        assert 0.7 < np.sqrt(np.mean(np.square(state.data))) < 1.5
        assert printed[-1] == ("w", state.scale)
        assert np.array_equal(run(x=x, w=value)["next_w"], run(x=x, w=graph.ScaledArray(value))["next_w"])
    assert "2**" in repr(state)


def test_fp16_states_reach_beyond_fp16():
    step = update().scalify(scaled_inputs=["w"], scaled_outputs=["next_w"]).passes("fp16")
    w = np.random.default_rng(0).standard_normal((3, 8)) * 2.0**-40
    state = graph.ScaledArray.of(w, dtype="float16")
    outputs = step.run(x=np.eye(4, 8), w=state)
    assert outputs["next_w"].dtype == np.float16 and outputs["next_w"].scale == 2.0**-40
    np.testing.assert_allclose(outputs["next_w"], w * (1 - np.where(np.arange(8) < 4, 1 / 32, 0)), rtol=2e-3)


def test_wrong_scales_are_refused():
    for scale in (0, 3, -2, float("nan"), float("inf"), 2.0**200):
        with pytest.raises(Error, match="power of two"):
            graph.ScaledArray(np.ones(3), scale)
    step = update()
    with pytest.raises(Error, match="scaled_inputs.*'v'"):
        step.scalify(scaled_inputs=["v"])
    with pytest.raises(Error, match="scaled_outputs.*'v'"):
        step.scalify(scaled_outputs=["v"])
    with pytest.raises(Error, match="'grad:w' is no output"):
        step.drop_output("grad:w")
    scaled = step.scalify(scaled_inputs=["w"])
    with pytest.raises(Error, match="expected no 'w.scale'"):
        scaled.scalify(scaled_inputs=["w"])


def test_a_scale_of_run_time_and_the_end_of_scaling():
    g = graph.Graph()
    x, s = g.input("x", [8]), g.input("s", [])
    data, scale = g.data_scale(g.set_scale(x, s, log2=1))
    g.output("data", data)
    g.output("scale", scale)
    g.output("stopped", g.data_scale(g.stop_scaling(g.set_scale(x, s)))[1])
    values = np.arange(8, dtype=np.float32)
    for given, scale in ((4.0, 8), (2.0**-10, 2.0**-9), (3.0, 8), (0.0, 2), (np.inf, 2)):
        outputs = g.scalify().run(x=values, s=given)
        assert outputs["scale"] == scale and outputs["stopped"] == 1, given
        assert np.array_equal(outputs["data"] * outputs["scale"], values)
    assert g.run(x=values, s=4.0)["scale"] == 1


def test_measured_every_few_calls_and_in_the_call_before():
    g = graph.Graph()
    x = g.input("x", [16])
    for name, value in (("every", g.periodic_rescale(x, "x", 3, norm="max")), ("before", g.delayed_rescale(x, "y", norm="max"))):
        data, scale = g.data_scale(value)
        g.output(name, scale)
        g.output("value_" + name, data * g.broadcast(scale, shape=[16], axes=[]))
    f = g.scalify().compile()
    states = {name: np.float32(0) for name in g.inputs if name != "x"}
    values = np.linspace(-1, 1, 16, dtype=np.float32)
    seen = []
    for call in range(6):
        outputs = f(states, x=values * np.float32(2**call))
        states = graph.next_inputs(outputs)
        seen.append((float(outputs["every"]), float(outputs["before"])))
        for name in ("every", "before"):
            assert np.array_equal(outputs["value_" + name], values * np.float32(2**call))
    assert seen == [(1, 1), (1, 1), (1, 2), (8, 4), (8, 8), (8, 16)]
    with pytest.raises(Error, match="calls: expected an integer from 1 to 16777216, got 0"):
        g.periodic_rescale(x, "z", 0)
    with pytest.raises(Error, match="norm: expected one of"):
        g.delayed_rescale(x, "z", norm="l3")


def test_a_rule_is_a_program_and_gradients_have_their_own():
    g = graph.Graph()
    x, z = g.parameter("x", [8]), g.parameter("z", [8])
    one = g.fill(shape=[], value=1.0)
    y = g.custom_scale(lambda a, b: a * b, [g.set_scale(x, log2=3), z], lambda sx, sz: g.maximum(sx * sx, sz + one),
                       [lambda sx, sz: sx, lambda sx, sz: sz * 4])
    data, scale = g.data_scale(y)
    g.output("scale", scale)
    g.output("loss", g.reduce_sum(y, axes=[0]))
    step = g.passes("autodiff", "simplify")
    arrays = {"x": np.arange(8) * 8.0, "z": np.arange(8) - 3.5}
    plain, scaled = step.run(arrays), step.scalify(scaled_outputs=["grad:x", "grad:z"])
    outputs = scaled.run(arrays)
    assert outputs["scale"] == 64
    for name in ("loss", "grad:x", "grad:z"):
        assert np.array_equal(outputs[name], plain[name]), name
    ratio = outputs["grad:z"].scale / outputs["grad:x"].scale
    assert ratio == 4 / 8, (outputs["grad:x"], outputs["grad:z"])
    with pytest.raises(Error, match="expected 2 gradients' rules, got 1"):
        g.custom_scale(lambda a, b: a, [x, z], lambda sx, sz: sx, [lambda sx, sz: sx])


def test_rescales_are_counted():
    counts = update().scalify().rescales()
    assert counts["measured"] == 1, counts
    assert set(counts) == {"measured", "at_run_time", "constant", "folded"}


def test_adamw_takes_a_scaled_gradient():
    """The scale of the gradient joins the factor that the update multiplies it with."""
    g = graph.Graph()
    x, w = g.input("x", [4, 8]), g.parameter("w", [3, 8])
    y = g.gemm(x, w, trans_b=True)
    g.output("loss", g.reduce_sum(y * y / 4096, axes=[0, 1]))
    step = g.passes("autodiff", "simplify")
    m, v = step.input("m", [3, 8]), step.input("v", [3, 8])
    number = [step.input(name, []) for name in ("lr", "c1", "c2")]
    norm, grad_scale, found = step.global_norm(step.fill(shape=[], value=1.0), step.outputs["grad:w"])
    outputs = step.adamw_step(step.inputs["w"], step.outputs["grad:w"], m, v, *number, grad_scale, found, beta2=0.99)
    for name, value in zip(("next_w", "next_m", "next_v"), outputs):
        step.output(name, value)
    step.output("norm", norm)
    step.drop_output("grad:w")
    random = np.random.default_rng(0)
    arrays = {"x": random.standard_normal((4, 8)), "w": random.standard_normal((3, 8)), "m": random.standard_normal((3, 8)) / 100,
              "v": random.random((3, 8)) / 1000, "lr": 1e-2, "c1": 0.1, "c2": 0.01}
    plain, scaled = step.run(arrays), step.scalify()
    for name, array in scaled.run(arrays).items():
        assert np.array_equal(array, plain[name]), name
    measured = step.scalify(rounding="paper", input_rms={"w": 5.0, "x": -3.0}).run(arrays)
    for name, array in measured.items():
        assert np.array_equal(array, plain[name]), name


def test_the_example_trains_fp16_data_with_scales(shared, tmp_path):
    folder = shared / "data/images/mnist"
    if not folder.is_dir():
        pytest.skip(f"no MNIST in {folder}")
    out = run_example("scaled_mnist.py", "--data", str(folder), "--steps", "200", folder=tmp_path)
    assert float(out.split()[1].rstrip(",")) > 0.85, out
    assert out.count("ScaledArray(float16") == 3
