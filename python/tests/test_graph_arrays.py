"""Functions of octet.graph read arrays where they lie, and write results where they are given."""

import numpy as np
import pytest

import octet
from octet import graph


def affine(rows=64):
    """y = x w + x w, z = 2 x."""
    g = graph.Graph()
    x, w = g.parameter("x", [rows, 32]), g.parameter("w", [32, 32])
    y = g.gemm(x, w)
    g.output("y", y + y)
    g.output("z", x * 2)
    return g


def arrays(rows=64, dtype="float32"):
    random = np.random.default_rng(0)
    return {"x": random.standard_normal((rows, 32)).astype(dtype), "w": random.standard_normal((32, 32)).astype(dtype)}


class Addresses:
    """The native function, and what it was called with last."""

    def __init__(self, run):
        self.run, self.given, self.results = run, {}, {}

    def __call__(self, given, results):
        address = lambda array: array.__array_interface__["data"][0]
        self.given = {name: address(array) for name, (_, _, array) in given.items()}
        self.results = {name: address(array) for name, array in results.items()}
        return self.run(given, results)


@pytest.mark.parametrize("recipe, dtype", [("fp32", "float32"), ("fp16", "float16")])
def test_arrays_of_the_graphs_types_are_not_copied(recipe, dtype):
    f = affine().passes(recipe).compile()
    f._run = native = Addresses(f._run)
    given = arrays(dtype=dtype)
    before = {name: array.copy() for name, array in given.items()}
    for array in given.values():
        array.flags.writeable = False
    outputs = f(given)
    assert f.copied_bytes == 0
    assert native.given == {name: array.ctypes.data for name, array in given.items()}
    assert native.results == {name: array.ctypes.data for name, array in outputs.items()}
    for name, array in given.items():
        assert np.array_equal(array, before[name])
    assert outputs["z"].dtype == dtype and np.array_equal(outputs["z"], given["x"] * 2)
    assert np.allclose(outputs["y"], 2 * given["x"].astype(np.float64) @ given["w"], rtol=2e-2 if recipe == "fp16" else 1e-4, atol=1e-2)
    first = {name: array.copy() for name, array in outputs.items()}
    f({**given, "x": given["x"] * 3})  # results are the caller's own
    assert all(np.array_equal(outputs[name], first[name]) for name in outputs)


def test_what_must_be_copied_is_counted_and_gives_the_same():
    f, given = affine().compile(), arrays()
    expected = f(given)
    n = given["x"].nbytes
    wide = np.zeros((64, 64), np.float32)
    wide[:, ::2] = given["x"]
    memory = np.zeros(n + 32, np.uint8)
    at = (4 - memory.ctypes.data) % 16
    shifted = memory[at:at + n].view(np.float32).reshape(given["x"].shape)  # aligned to 4 bytes
    shifted[...] = given["x"]
    for x in (given["x"].astype(np.float64), given["x"].astype(">f4"), wide[:, ::2], given["x"].tolist(), shifted):
        outputs = f({**given, "x": x})
        assert all(np.array_equal(outputs[name], expected[name]) for name in expected)
        assert f.copied_bytes == n


def test_bf16_is_read_where_it_lies():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    f, given = affine().passes("bf16").compile(), arrays()
    words = {name: array.astype(ml_dtypes.bfloat16) for name, array in given.items()}
    outputs, expected = f(words), f({name: array.astype(np.float32) for name, array in words.items()})
    assert outputs["z"].dtype == np.float32 and all(np.array_equal(outputs[name], expected[name]) for name in outputs)
    f(words)
    assert f.copied_bytes == sum(array.nbytes for array in outputs.values())  # results alone: float32 of BF16


CODES = """graph "codes" phase typed
%0 = input batch "q" : e4m3:tensor[2,2]
%1 = input batch "s" : f32[]
%2 = dequantize(%0, %1) : f32[2,2]
output "y" %2
"""


def test_float8_of_the_inputs_own_format_alone_are_codes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    f, x = graph.Graph.parse(CODES).compile(), np.array([[1, 2], [-3, 0.5]], np.float32)
    scale = np.array(2.0, np.float32)
    assert np.array_equal(f(q=x.astype(ml_dtypes.float8_e4m3fn), s=scale)["y"], 2 * x)
    for name in ("float8_e5m2", "float8_e4m3fnuz"):
        with pytest.raises(octet.Error, match=f"'q': expected type .* for e4m3:tensor.*, got {name}"):
            f(q=x.astype(getattr(ml_dtypes, name)), s=scale)


def test_tensors_for_a_gpu_are_read_as_arrays_of_the_cpu_are():
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    from octet import _graph_cuda
    cpu = torch.device("cpu")
    for kind in ("i32", "u32", "i16", "u16", "u8", "bool"):
        g = graph.Graph()
        g.output("y", g.input("x", [4], dtype=kind))
        ((_, descr, _),) = g.compile()._forms
        given = np.zeros(4, descr)
        read, _ = _graph_cuda._tensor(torch, "x", given, kind, [4], cpu)
        assert read.nbytes == given.nbytes, kind
    codes = torch.ones(4).to(torch.float8_e5m2)
    assert torch.equal(_graph_cuda._tensor(torch, "x", codes, "e5m2", [4], cpu)[0], codes.view(torch.uint8))
    with pytest.raises(octet.Error, match="got torch.float8_e5m2"):
        _graph_cuda._tensor(torch, "x", codes, "e4m3", [4], cpu)


def test_states_that_a_call_updates_are_the_callers_still():
    g = graph.Graph()
    x = g.input("x", [4])
    g.output("y", g.delayed_rescale(x, "site"))
    f = g.compile()
    state = np.array(2.0, np.float32)
    outputs = f({"x": np.ones(4, np.float32), "rescale_factor:site": state})
    assert state == 2 and "next:rescale_factor:site" in outputs


class Lent:
    """An array that is known by DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **named):
        return self.array.__dlpack__(**named)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_arrays_are_read_where_they_lie():
    f, given = affine().compile(), arrays()
    f._run = native = Addresses(f._run)
    outputs = f({name: Lent(array) for name, array in given.items()})
    assert f.copied_bytes == 0 and native.given == {name: array.ctypes.data for name, array in given.items()}
    assert np.array_equal(outputs["y"], f(given)["y"])


def test_pytorchs_tensors_are_read_and_given():
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    given = arrays()
    f = affine().compile()
    f._run = native = Addresses(f._run)
    tensors = {name: torch.from_numpy(array.copy()) for name, array in given.items()}
    outputs = f(tensors)
    assert f.copied_bytes == 0
    assert native.given == {name: tensor.data_ptr() for name, tensor in tensors.items()}
    assert native.results == {name: tensor.data_ptr() for name, tensor in outputs.items()}
    expected = f(given)
    assert all(isinstance(outputs[name], torch.Tensor) and np.array_equal(outputs[name].numpy(), expected[name]) for name in expected)
    half = affine().passes("bf16").compile()
    words = {name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}
    assert torch.equal(half(words)["z"], words["x"].float() * 2)
    scaled = affine().scalify(scaled_inputs=["x"], scaled_outputs=["z"]).compile()
    z = scaled(x=graph.ScaledArray(tensors["x"], 4.0), w=tensors["w"])["z"]
    assert isinstance(z, graph.ScaledArray) and np.array_equal(np.asarray(z), given["x"] * 8)


def test_scaled_arrays_are_made_of_pytorchs_tensors():
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    x = torch.arange(1, 7.0).reshape(2, 3)
    expected = graph.ScaledArray.of(x.numpy(), granularity="row")
    for tensor in (x.bfloat16(), x.clone().requires_grad_()):
        made = graph.ScaledArray.of(tensor, granularity="row")
        assert np.array_equal(made.data, expected.data) and np.array_equal(made.scale, expected.scale)


def test_mistakes_name_all_that_is_wrong():
    f = affine().compile()
    with pytest.raises(octet.Error) as caught:
        f(x=np.zeros((64, 32), np.int32), v=np.zeros(1))
    for part in ("'x': expected type", "expected an array 'w'", "'v' is no input"):
        assert part in str(caught.value)
