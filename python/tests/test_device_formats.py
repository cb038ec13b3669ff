"""octet.formats on a CUDA device against the CPU's bits; what it asks of the CUDA module, with kernels of the CPU in its place; and the
module's kernels run on the CPU. Needs PyTorch."""

import ctypes
import os
from pathlib import Path

import numpy as np
import octet
import pytest
from conftest import ROOT, hostile_floats

torch = pytest.importorskip("torch", reason="octet.formats on a device needs PyTorch")

from octet import _arrays, _cuda_formats, _device_formats, _native, formats  # noqa: E402

FORMATS = ["e4m3", "e5m2", "hif8", "bf16", "fp16", "e8m0", "de8s", "de8u", "int8"]
SCALED = ["e4m3", "e5m2", "hif8", "de8s", "de8u", "int8"]
EXPANDED = ["e4m3", "e5m2", "hif8", "de8s", "de8u"]
ROUNDINGS = ["rne", "ta", "rtz", "sr", "hr", "hrv", "near", "floor", "ceil"]  # by their numbers
SHAPES = [(37, 131), (5, 3000), (1, 1), (130, 1), (0, 7), (7, 0), (2, 3, 50)]


def memory(address, n, dtype):
    """Where the module would read and write."""
    if not address or n == 0:
        return np.empty(0, dtype)
    return np.frombuffer((ctypes.c_uint8 * (n * np.dtype(dtype).itemsize)).from_address(address), dtype)


def name_of(number):
    return {_native.format_number(name): name for name in FORMATS}[number]


class Kernels:
    """The module's functions, one tile after another, by the CPU's."""

    @staticmethod
    def run(name, call, stream):
        assert stream == 12 and call.device == 0
        getattr(Kernels, name)(call)

    @staticmethod
    def encode(c):
        source = {1: "f32", 2: "bf16", 3: "fp16"}[c.source]
        width = _native.format_bytes(name_of(c.format))
        values, codes = memory(c.values, c.n * (4 if c.source == 1 else 2), np.uint8), memory(c.codes, c.n * width, np.uint8)
        call = _native.EncodeCall(name_of(c.format), ROUNDINGS[c.rounding], source, bool(c.saturate), bool(c.nan_to_zero), c.seed)
        _native.encode(call, values, codes, memory(c.bits, c.n, np.uint32) if c.bits else None)

    @staticmethod
    def decode(c):
        width = _native.format_bytes(name_of(c.format))
        _native.decode(name_of(c.format), memory(c.codes, c.n * width, np.uint8), memory(c.values, c.n * 4, np.uint8))

    @staticmethod
    def tiles(c):
        """(number, elements) of every tile of the grid."""
        elements = np.arange(c.rows * c.cols).reshape(c.rows, c.cols)
        for i in range(c.grid_rows):
            for j in range(c.grid_cols):
                rows = slice(i * c.tile_rows, (i + 1) * c.tile_rows)
                yield i * c.grid_cols + j, elements[rows, j * c.tile_cols:(j + 1) * c.tile_cols].reshape(-1)

    @staticmethod
    def each(c, function, kind, is_inverse):
        n, n_tiles = c.rows * c.cols, c.grid_rows * c.grid_cols
        x, codes, of_tiles = memory(c.x, n, np.float32), memory(c.codes, n, np.uint8), memory(c.of_tiles, n_tiles, kind)
        is_bad = False
        for number, elements in Kernels.tiles(c):
            granularity = f"1x{max(1, len(elements))}" if c.bf16_scales else "tensor"
            call = _native.QuantizeCall(name_of(c.format), granularity, 1, len(elements), "mv"[c.second_moment],
                                        ("exact", "fast")[c.fast])
            part, its_codes, its_own = x[elements], codes[elements], of_tiles[number:number + 1].copy()
            its_words = its_own if kind == np.uint32 else its_own.view(np.uint8)
            if len(elements) == 0 and kind == np.uint32:
                continue
            if len(elements) == 0:
                its_own[:] = 1
            elif is_inverse:
                function(call, its_codes, its_words, part.view(np.uint8))
            else:
                is_bad |= function(call, part.view(np.uint8), its_codes, its_words)
            x[elements], codes[elements], of_tiles[number] = part, its_codes, its_own[0]
        return is_bad

    @staticmethod
    def quantize(c):
        memory(c.nonfinite, 1, np.uint32)[0] = Kernels.each(c, _native.quantize, np.float32, False)

    @staticmethod
    def expand(c):
        memory(c.scratch, c.grid_rows * c.grid_cols, np.uint32)[:] = 7
        memory(c.nonfinite, 1, np.uint32)[0] = Kernels.each(c, _native.expand, np.uint32, False)

    @staticmethod
    def dequantize(c):
        Kernels.each(c, _native.dequantize, np.float32, True)

    @staticmethod
    def contract(c):
        Kernels.each(c, _native.contract, np.uint32, True)


def emulated_module():
    """The CUDA module with its kernels run on the CPU (tests/emulator), where it is built."""
    built = Path(os.environ.get("OCTET_PROGRAM", ROOT / "build" / "octet")).parent / "tests" / "emulator" / "liboctet_cuda_emulated.so"
    return Path(os.environ.get("OCTET_EMULATED_MODULE", built))


@pytest.fixture(params=["planned", "emulated", "cuda"])
def device(request, monkeypatch):
    """Where tensors lie: on the CPU as if that were a device, with Kernels and with the module's own; and on a real one."""
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")
        return torch.device("cuda", 0)
    if request.param == "emulated" and not emulated_module().exists():
        pytest.skip(f"the emulated CUDA module is not built: {emulated_module()}")
    monkeypatch.setattr(formats, "is_on_cuda", _arrays.is_torch)
    monkeypatch.setattr(_device_formats.DeviceFormats, "_stream", 12 if request.param == "planned" else 0)
    if request.param == "planned":
        monkeypatch.setattr(_cuda_formats, "run", Kernels.run)
    else:
        monkeypatch.setenv("OCTET_CUDA_MODULE", str(emulated_module()))
        monkeypatch.setattr(_cuda_formats, "_loaded", None)
    return torch.device("cpu")


def bits(array):
    """As bytes, of either library."""
    if isinstance(array, torch.Tensor):
        array = array.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy()
    return array.tobytes()


def same(tensor, array, device):
    assert isinstance(tensor, torch.Tensor) and tensor.device == device
    assert tuple(tensor.shape) == array.shape and tensor.element_size() == array.dtype.itemsize
    return bits(tensor) == bits(array)


@pytest.mark.parametrize("format", FORMATS)
def test_codes_are_the_cpus(device, format):
    x = hostile_floats(70001, seed=1)
    given = torch.from_numpy(x.copy()).to(device)
    words = np.random.default_rng(2).integers(0, 2**32, x.size, dtype=np.uint32)
    for rounding in formats.formats()[format]["roundings"]:
        for options in ({}, {"saturate": False}, {"nan_to_zero": True}, {"seed": 11}):
            expected = formats.encode(x, format, rounding, **options)
            assert same(formats.encode(given, format, rounding, **options), expected, device), (rounding, options)
        expected = formats.encode(x, format, rounding, bits=words)
        own = torch.from_numpy(words.view(np.int32).copy()).to(device)
        assert same(formats.encode(given, format, rounding, bits=own), expected, device), rounding


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_codes_of_every_16_bit_value_are_the_cpus(device, format, dtype):
    x = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)
    host = x.view(torch.int16).numpy().view(np.float16) if dtype == torch.float16 else None
    for rounding in formats.formats()[format]["roundings"]:
        if host is None:
            ml_dtypes = pytest.importorskip("ml_dtypes")
            host = x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        assert same(formats.encode(x.to(device), format, rounding), formats.encode(host, format, rounding), device), rounding


@pytest.mark.parametrize("format", FORMATS)
def test_every_code_has_the_cpus_value(device, format):
    codes = np.arange(256, dtype=np.uint8) if _native.format_bytes(format) == 1 else np.arange(65536, dtype=np.uint16).view(np.int16)
    assert same(formats.decode(torch.from_numpy(codes.copy()).to(device), format), formats.decode(codes, format), device)


def of_finite(x, kind):
    """What the CPU quantizes without NaN and Inf where a granularity would spread them."""
    x = np.where(np.isfinite(x), x, 1).astype(np.float32) if kind == "finite" else x
    return np.where(np.abs(x) < 1e-30, 0, x).astype(np.float32) if kind == "normal" else x


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("format", SCALED)
def test_quantized_data_is_the_cpus(device, format, shape):
    for seed, kind in enumerate(("hostile", "finite", "normal")):
        x = of_finite(hostile_floats(max(20, int(np.prod(shape))), seed)[:int(np.prod(shape))].reshape(shape), kind)
        given = torch.from_numpy(x.copy()).to(device)
        for granularity in ("tensor", "row", "1x1", "1x16", "1x128", "1x5000", "16x16", "128x128", "7x7"):
            expected, q = formats.quantize(x, format, granularity), formats.quantize(given, format, granularity)
            assert same(q.codes, expected.codes, device) and same(q.scale, expected.scale, device), (kind, granularity)
            assert bool(q.nonfinite) == expected.nonfinite and q.meta is None
            values = formats.dequantize(expected)
            assert same(formats.dequantize(q), values, device), (kind, granularity)
            parts = formats.dequantize(q.codes, q.scale, format=format, granularity=granularity)
            assert same(parts, values, device)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("moment", ["m", "v"])
@pytest.mark.parametrize("format", EXPANDED)
def test_range_expansion_is_the_cpus(device, format, moment, shape):
    rng, n = np.random.default_rng(5), int(np.prod(shape))
    wide = (np.exp(rng.standard_normal(n) * 4) * np.sign(rng.standard_normal(n))).astype(np.float32).reshape(shape)
    for x in (wide, hostile_floats(max(20, n), 6)[:n].reshape(shape), np.zeros(shape, np.float32)):
        given = torch.from_numpy(x.copy()).to(device)
        for granularity in ("tensor", "row", "1x16", "1x128", "1x5000"):
            choice = {"granularity": granularity, "expand": True, "moment": moment}
            expected, q = formats.quantize(x, format, **choice), formats.quantize(given, format, **choice)
            assert same(q.codes, expected.codes, device) and same(q.meta, expected.meta, device), granularity
            assert bool(q.nonfinite) == expected.nonfinite and q.scale is None
            assert same(formats.dequantize(q), formats.dequantize(expected), device), granularity


@pytest.mark.parametrize("format", EXPANDED)
def test_fast_powers_differ_in_few_codes(device, format):
    x = hostile_floats(1 << 16, 8)
    choice = {"granularity": "1x128", "expand": True, "math": "fast"}
    expected, q = formats.quantize(x, format, **choice), formats.quantize(torch.from_numpy(x.copy()).to(device), format, **choice)
    assert bits(q.meta) == bits(expected.meta)
    codes = q.codes.cpu().numpy()
    assert np.mean(codes == expected.codes) >= 0.999
    a, b = formats.dequantize(q).cpu().numpy(), formats.dequantize(codes, meta=expected.meta, format=format, granularity="1x128")
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.all(np.isclose(a, b, rtol=1e-4, atol=1e-37) | np.isnan(b) | (np.abs(b) > 1e38))


def test_scales_of_hostile_numbers_give_the_cpus_values(device):
    codes = np.tile(np.arange(256, dtype=np.uint8), 6).reshape(6, 256)
    scale = np.array([0, np.inf, -1, 1e-45, 3e38, 1], np.float32).reshape(6, 1)
    for format in SCALED:
        with np.errstate(over="ignore", invalid="ignore"):
            expected = formats.dequantize(codes, scale, format=format, granularity="row")
        values = formats.dequantize(torch.from_numpy(codes.copy()).to(device), torch.from_numpy(scale.copy()).to(device), format=format,
                                    granularity="row")
        assert same(values, expected, device), format


def test_tensors_of_any_layout_give_the_same_codes(device):
    x = hostile_floats(24 * 36, seed=9).reshape(24, 36)
    given, expected = torch.from_numpy(x.copy()).to(device), formats.encode(x, "hif8")
    transposed = given.t().contiguous().t()
    assert not transposed.is_contiguous()
    for tensor in (transposed, given.repeat_interleave(2, 1)[:, ::2], given.clone().requires_grad_()):
        assert same(formats.encode(tensor, "hif8"), expected, device)
        assert same(formats.quantize(tensor, granularity="1x16").codes, formats.quantize(x, granularity="1x16").codes, device)
    raw = torch.zeros(x.size * 4 + 4, dtype=torch.uint8, device=device)
    raw[4:] = given.view(torch.uint8).reshape(-1)
    behind = raw[4:].view(torch.float32).reshape(24, 36)
    assert same(formats.encode(behind, "hif8"), expected, device)
    if hasattr(torch, "float8_e4m3fn"):
        codes = formats.encode(given, "e4m3")
        assert same(formats.decode(codes.view(torch.float8_e4m3fn).t()), formats.decode(formats.encode(x, "e4m3").T, "e4m3"), device)


def test_results_lie_where_out_says(device):
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    codes, values = torch.zeros(2, 2, dtype=torch.uint8, device=device), torch.zeros(2, 2, device=device)
    assert formats.encode(x, "e4m3", out=codes) is codes and formats.decode(codes, "e4m3", out=values) is values
    assert torch.equal(values, x)
    q = formats.quantize(x)
    assert formats.dequantize(q, out=values) is values and torch.allclose(values, x, rtol=0.07)
    for out in (torch.zeros(4, dtype=torch.uint8, device=device), torch.zeros(2, 2, device=device),
                torch.zeros(2, 4, dtype=torch.uint8, device=device)[:, ::2]):
        with pytest.raises(octet.Error, match="out: expected"):
            formats.encode(x, "e4m3", out=out)


class OfAnother:
    """A tensor that only DLPack can see, of a library whose arrays are these."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __array_namespace__(self):
        return type(self)

    @classmethod
    def from_dlpack(cls, tensor):
        return cls(tensor)


def test_arrays_of_other_libraries_come_back_as_theirs(device, monkeypatch):
    monkeypatch.setattr(_arrays, "_ON_CUDA", (1, 2))
    if device.type == "cpu":
        monkeypatch.setattr(formats, "is_on_cuda", lambda x: not isinstance(x, np.ndarray))
    x = hostile_floats(100, seed=4)
    theirs = OfAnother(torch.from_numpy(x.copy()).to(device))
    codes = formats.encode(theirs, "e4m3")
    assert isinstance(codes, OfAnother) and same(codes.tensor, formats.encode(x, "e4m3"), device)
    q = formats.quantize(OfAnother(theirs.tensor.double()), granularity="1x16")
    assert same(q.scale.tensor, formats.quantize(x, granularity="1x16").scale, device)
    assert same(formats.dequantize(q).tensor, formats.dequantize(formats.quantize(x, granularity="1x16")), device)


@pytest.mark.parametrize("call,text", [
    (lambda x: formats.encode(x, "e9m9"), "expected a number format"),
    (lambda x: formats.encode(x, "e4m3", "up"), "expected one of rne ta rtz sr near, got up"),
    (lambda x: formats.encode(x, "e4m3", "hr"), "expected a rounding of e4m3"),
    (lambda x: formats.encode(x.double(), "e4m3"), "expected values of float32, bfloat16 or float16, got float64"),
    (lambda x: formats.encode(x.to(torch.complex64), "e4m3"), "expected values of float32"),
    (lambda x: formats.encode(x.to_sparse(), "e4m3"), "expected a dense tensor"),
    (lambda x: formats.encode(x, "e4m3", "sr", bits=torch.zeros(3, dtype=torch.int32, device=x.device)), "expected 16 random words"),
    (lambda x: formats.encode(x, "e4m3", "sr", bits=torch.zeros(16, device=x.device)), "expected random words of uint32 or int32"),
    (lambda x: formats.encode(x, "e4m3", "sr", bits=[1] * 16), "expected an array on .*, got list"),
    (lambda x: formats.decode(x.byte()), "expected a format's name|expected codes"),
    (lambda x: formats.decode(x.short(), "e4m3"), "expected codes of e4m3, 1 bytes each, got int16"),
    (lambda x: formats.decode(x, "e4m3"), "expected codes of e4m3"),
    (lambda x: formats.quantize(x, granularity="2x3"), "expected granularity tensor, row, 1xG or BxB"),
    (lambda x: formats.quantize(x, "bf16"), "expected an 8-bit element format, got bf16"),
    (lambda x: formats.quantize(x, "e8m0"), "expected an 8-bit element format, got e8m0"),
    (lambda x: formats.quantize(x, "int8", expand=True), "expected a format with range expansion, got int8"),
    (lambda x: formats.quantize(x, granularity="16x16", expand=True), "expected granularity tensor, row or 1xG"),
    (lambda x: formats.quantize(x, moment="w"), "expected moment m or v"),
    (lambda x: formats.quantize(x, expand=True, math="near"), "expected math exact or fast"),
    (lambda x: formats.dequantize(x.byte(), torch.ones(3, 1, device=x.device)), "16 codes want 1 scales, got 3"),
    (lambda x: formats.dequantize(x.byte(), meta=torch.ones(3, dtype=torch.int32, device=x.device), granularity="1x16"),
     "16 codes want 1 metadata, got 3"),
])
def test_mistakes_are_errors_of_one_line(device, call, text):
    with pytest.raises(octet.Error, match=text) as caught:
        call(torch.ones(4, 4, device=device))
    assert "\n" not in str(caught.value)


def test_freed_memory_is_refused(device):
    freed = torch.ones(8, device=device)
    freed.untyped_storage().resize_(0)
    with pytest.raises(octet.Error, match="storage is freed"):
        formats.encode(freed, "e4m3")
    with pytest.raises(octet.Error, match="storage is freed"):
        formats.decode(torch.ones(8, dtype=torch.uint8, device=device), "e4m3", out=freed)


def test_a_module_that_is_not_there_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("OCTET_CUDA_MODULE", str(tmp_path / "none.so"))
    monkeypatch.setattr(_cuda_formats, "_loaded", None)
    with pytest.raises(octet.Error, match=r"\[formats\] expected the CUDA module .*none.so") as caught:
        _cuda_formats.run("decode", _cuda_formats.Decoding(), 0)
    assert "\n" not in str(caught.value) and caught.value.code == "device"


on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@on_cuda
def test_arrays_of_two_places_are_refused():
    x, codes = torch.ones(4, device="cuda"), torch.zeros(4, dtype=torch.uint8)
    for call in (lambda: formats.encode(x, "e4m3", out=codes), lambda: formats.encode(x.cpu(), "e4m3", out=codes.cuda()),
                 lambda: formats.dequantize(codes.cuda(), torch.ones(1, 1)),
                 lambda: formats.encode(x, "e4m3", "sr", bits=np.zeros(4, np.uint32))):
        with pytest.raises(octet.Error, match="got one on") as caught:
            call()
        assert "\n" not in str(caught.value) and caught.value.code == "device"


@on_cuda
def test_work_is_queued_on_the_current_stream():
    x, stream = torch.zeros(1 << 22, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()

    def there_and_back():
        return formats.quantize(formats.decode(formats.encode(x, "e4m3"), "e4m3"), granularity="1x128")

    with torch.cuda.stream(stream):
        there_and_back()  # loads kernels and takes memory, which may wait
        stream.synchronize()
        torch.cuda._sleep(1_000_000_000)
        x.fill_(3.5)  # 448 times a power of two
        q = there_and_back()
        assert not stream.query(), "nothing waits"
    stream.synchronize()
    assert torch.all(formats.dequantize(q) == 3.5) and not q.nonfinite


@on_cuda
def test_a_cuda_graph_holds_the_calls():
    x = torch.randn(64, 256, device="cuda")
    formats.dequantize(formats.quantize(x, granularity="1x128", expand=True))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        q = formats.quantize(x, granularity="1x128", expand=True)
        y = formats.dequantize(q)
    x.copy_(torch.randn(64, 256, device="cuda"))
    graph.replay()
    expected = formats.quantize(x.cpu().numpy(), granularity="1x128", expand=True)
    assert bits(q.codes) == bits(expected.codes) and bits(y) == bits(formats.dequantize(expected))


@on_cuda
def test_arrays_of_cupy_are_read_and_given_back():
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    x = hostile_floats(1000, seed=4).reshape(10, 100)
    codes = formats.encode(cupy.asarray(x), "hif8")
    assert isinstance(codes, cupy.ndarray) and codes.get().tobytes() == formats.encode(x, "hif8").tobytes()
    expected, q = formats.quantize(x, granularity="1x16", expand=True), formats.quantize(cupy.asarray(x), granularity="1x16", expand=True)
    assert isinstance(q.meta, cupy.ndarray) and q.meta.get().tobytes() == expected.meta.tobytes()
    assert formats.dequantize(q).get().tobytes() == formats.dequantize(expected).tobytes()


@pytest.mark.parametrize("device", ["emulated", "cuda"], indirect=True)
def test_metadata_that_no_quantizer_writes_gives_nan(device):
    codes = torch.ones(64, dtype=torch.uint8, device=device)
    one = 0x3F800000 << 1  # an amax of 1
    meta = torch.tensor([one, 5, 0x7F800000 >> 7 << 8 | 5, one | 16], dtype=torch.int64).to(torch.int32).to(device)
    values = formats.dequantize(codes, meta=meta, granularity="1x16").isnan()
    assert torch.all(values[:48]) and not torch.any(values[48:])


@on_cuda
def test_large_tensors_are_the_cpus():
    x = torch.randn(1 << 26, device="cuda").reshape(1 << 13, -1)
    x[100, 200] = 12345.0
    host = x.cpu().numpy()
    assert bits(formats.encode(x, "e4m3", "sr", seed=3)) == bits(formats.encode(host, "e4m3", "sr", seed=3))
    for granularity in ("tensor", "128x128"):
        expected, q = formats.quantize(host, granularity=granularity), formats.quantize(x, granularity=granularity)
        assert bits(q.codes) == bits(expected.codes) and bits(q.scale) == bits(expected.scale)
