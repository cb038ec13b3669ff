"""octet.formats against the program and the exact vectors, on good and on hostile arrays."""

import json

import ml_dtypes
import numpy as np
import octet
import pytest
from conftest import hostile_floats, same_bits
from octet import formats

EIGHT_BIT = ["e4m3", "e5m2", "hif8", "de8s", "de8u", "int8", "e8m0"]
QUANTIZED = ["e4m3", "e5m2", "hif8"]


def read_safetensors(data):
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    types = {"F32": np.float32, "BF16": ml_dtypes.bfloat16, "U32": np.uint32}
    return {name: np.frombuffer(data[8 + size:][slice(*entry["data_offsets"])],
                                types.get(entry["dtype"], np.uint8)).reshape(entry["shape"])
            for name, entry in header.items() if name != "__metadata__"}


@pytest.mark.parametrize("format", [*EIGHT_BIT, "bf16", "fp16"])
def test_encode_equals_the_program(program, format):
    x = hostile_floats(4099, seed=1)
    for rounding in formats.formats()[format]["roundings"]:
        for saturate in (True, False):
            flag = "--saturate" if saturate else "--no-saturate"
            expected = program("formats", "encode", "--format", format, "--rounding", rounding, flag, "--seed", 7,
                               input=x.tobytes())
            codes = formats.encode(x, format, rounding, saturate=saturate, seed=7)
            assert codes.tobytes() == expected, (rounding, saturate)


def test_encode_equals_the_vectors(shared):
    folder = shared / "vectors"
    x = np.fromfile(folder / "inputs_f32.bin", np.float32)
    bits = np.fromfile(folder / "rbits.bin", np.uint32)
    n_files = 0
    for name, facts in json.loads((folder / "manifest.json").read_text())["files"].items():
        if not name.startswith("enc_"):
            continue
        # A format without a choice of saturation has none in its file's name.
        codes = formats.encode(x, facts["fmt"], facts["mode"], saturate=bool(facts.get("sat", True)),
                               nan_to_zero=bool(facts.get("nan0", False)), bits=bits if facts["mode"] in ("sr", "hr") else None)
        assert codes.tobytes() == (folder / name).read_bytes(), name
        n_files += 1
    assert n_files > 30


@pytest.mark.parametrize("source,word", [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
def test_encode_of_16_bit_values_equals_the_vectors(shared, source, word):
    x = np.arange(65536, dtype=np.uint16).view(word)
    for path in sorted((shared / "vectors").glob(f"enc16_{source}_*.bin")):
        _, _, format, rounding, saturation = path.stem.split("_")
        codes = formats.encode(x, format, rounding, saturate=saturation == "sat")
        assert codes.tobytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("format", [*EIGHT_BIT, "bf16", "fp16"])
def test_decode_equals_the_program_for_every_code(program, format):
    codes = np.arange(256, dtype=np.uint8) if format in EIGHT_BIT else np.arange(65536, dtype=np.uint16)
    expected = program("formats", "decode", "--format", format, input=codes.tobytes())
    assert formats.decode(codes, format).tobytes() == expected


def test_types_of_ml_dtypes_say_their_format():
    x = np.array([1.0, -2.5, 300.0], np.float32)
    for word, format in ((ml_dtypes.float8_e4m3fn, "e4m3"), (ml_dtypes.float8_e5m2, "e5m2")):
        theirs = x.astype(word)
        assert same_bits(formats.encode(x, format), theirs.view(np.uint8))
        assert same_bits(formats.decode(theirs), theirs.astype(np.float32))
        out = np.empty(3, word)
        assert formats.encode(x, format, out=out) is out
        assert same_bits(out, theirs)
    with pytest.raises(octet.Error, match="expected codes of e5m2"):
        formats.decode(x.astype(ml_dtypes.float8_e4m3fn), "e5m2")


@pytest.mark.parametrize("format", QUANTIZED)
@pytest.mark.parametrize("granularity", ["tensor", "row", "1x16", "1x128", "128x128"])
def test_quantize_equals_the_program(program, format, granularity):
    x = hostile_floats(37 * 131, seed=3).reshape(37, 131)
    x = np.where(np.abs(x) < 1e30, x, 1.0).astype(np.float32)
    data = program("formats", "quantize", "--format", format, "--granularity", granularity, "--shape", "37,131",
                   "--quiet", input=x.tobytes())
    expected = read_safetensors(data)
    q = formats.quantize(x, format, granularity)
    codes, scale = q
    assert codes.tobytes() == expected["codes"].tobytes()
    assert same_bits(scale, expected["scale"].astype(np.float32))
    values = program("formats", "dequantize", input=data)
    assert formats.dequantize(q).tobytes() == values
    assert formats.dequantize(codes, scale, format=format, granularity=granularity).tobytes() == values


@pytest.mark.parametrize("format", ["e4m3", "e5m2", "hif8", "de8s"])
@pytest.mark.parametrize("granularity", ["tensor", "row", "1x128"])
@pytest.mark.parametrize("moment", ["m", "v"])
def test_range_expansion_equals_the_program(program, format, granularity, moment):
    rng = np.random.default_rng(5)
    x = (np.exp(rng.standard_normal((19, 77)) * 4) * np.sign(rng.standard_normal((19, 77)))).astype(np.float32)
    x[3] = 0
    x[4, 5] = np.nan
    data = program("formats", "quantize", "--format", format, "--granularity", granularity, "--expand", "--moment",
                   moment, "--shape", "19,77", "--quiet", input=x.tobytes())
    expected = read_safetensors(data)
    q = formats.quantize(x, format, granularity, expand=True, moment=moment)
    assert q.nonfinite
    codes, meta = q
    assert codes.tobytes() == expected["codes"].tobytes()
    assert same_bits(meta, expected["meta"])
    assert formats.dequantize(q).tobytes() == program("formats", "dequantize", input=data)


def test_arrays_of_any_layout_give_the_same_codes():
    x = hostile_floats(24 * 36, seed=9).reshape(24, 36)
    expected = formats.encode(x, "hif8")
    assert same_bits(formats.encode(np.asfortranarray(x), "hif8"), expected)
    assert same_bits(formats.encode(np.repeat(x, 2, axis=1)[:, ::2], "hif8"), expected)
    assert same_bits(formats.encode(x[::-1], "hif8"), expected[::-1].copy())
    assert same_bits(formats.encode(x.astype(">f4"), "hif8"), expected)
    misaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    assert not misaligned.flags.aligned
    assert same_bits(formats.encode(misaligned, "hif8"), expected)
    finite = np.where(np.isfinite(misaligned), misaligned, 0)
    same = np.frombuffer(b"\0" + finite.astype(np.float32).tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    assert same_bits(formats.quantize(same).codes, formats.quantize(finite).codes)
    read_only = x.copy()
    read_only.flags.writeable = False
    assert same_bits(formats.encode(read_only, "hif8"), expected)


@pytest.mark.parametrize("shape", [(0,), (0, 7), (7, 0), (), (2, 3, 5)])
def test_shapes_are_kept(shape):
    x = np.full(shape, 3.0, np.float32)
    assert formats.encode(x, "e4m3").shape == shape
    assert formats.decode(formats.encode(x, "e4m3"), "e4m3").shape == shape
    q = formats.quantize(x, granularity="1x16")
    assert q.codes.shape == shape
    values = formats.dequantize(q)
    assert values.shape == shape and np.allclose(values, x, rtol=2**-8)


def test_results_lie_where_out_says():
    x = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    codes, values = np.zeros((2, 2), np.uint8), np.zeros((2, 2), np.float32)
    assert formats.encode(x, "e4m3", out=codes) is codes
    assert formats.decode(codes, "e4m3", out=values) is values
    assert same_bits(values, x)
    for out in (np.zeros((4,), np.uint8), np.zeros((2, 2), np.uint16), np.zeros((2, 4), np.uint8)[:, ::2]):
        with pytest.raises(octet.Error, match="out: expected"):
            formats.encode(x, "e4m3", out=out)
    codes.flags.writeable = False
    with pytest.raises(octet.Error, match="read-only"):
        formats.encode(x, "e4m3", out=codes)


def test_results_lie_on_nothing_that_is_read():
    memory = np.zeros(4096, np.uint8)
    x, codes = memory.view(np.float32), memory[:1024]
    for call in (lambda: formats.encode(x, "e4m3", out=codes), lambda: formats.decode(codes, "e4m3", out=x),
                 lambda: formats.dequantize(codes, np.float32(1), out=x),
                 lambda: formats.dequantize(np.zeros(1024, np.uint8), memory[:4].view(np.float32), out=x),
                 lambda: formats.encode(np.ones(256, np.float32), "e4m3", "sr", bits=x[:256].view(np.uint32), out=memory[256:512])):
        with pytest.raises(octet.Error, match="out: expected memory of its own"):
            call()
    halves = np.ones(8, ml_dtypes.bfloat16)
    assert np.array_equal(formats.encode(halves, "fp16", out=halves.view(np.uint16)).view(np.float16), np.ones(8))
    assert formats.encode(x[256:], "e4m3", out=memory[:768]) is not None


def test_random_words_are_honoured_or_refused():
    x = np.ones(3, np.float32)
    with pytest.raises(octet.Error, match="bits: expected them with a rounding that draws"):
        formats.encode(x, "e4m3", bits=np.zeros(3, np.uint32))
    for words in ([0, 1, 2**32], [-1, 0, 1]):
        with pytest.raises(octet.Error, match=r"expected random words from 0 to 2\^32 - 1"):
            formats.encode(x, "e4m3", "sr", bits=np.array(words))
    words = np.array([0, 2**31, 2**32 - 1])
    x = x * np.float32(1.0625)
    assert same_bits(formats.encode(x, "e4m3", "sr", bits=words), formats.encode(x, "e4m3", "sr", bits=words.astype(np.uint32)))


def test_inputs_are_read_where_they_lie_and_never_changed():
    x = hostile_floats(1000, seed=2)
    before = x.tobytes()
    from octet._arrays import adopt, bytes_of, contiguous
    assert np.shares_memory(bytes_of(contiguous(adopt(x))), x)
    formats.quantize(x)
    formats.encode(x, "e5m2")
    assert x.tobytes() == before


@pytest.mark.parametrize("call,text", [
    (lambda: formats.encode([1.0], "e9m9"), "expected a number format"),
    (lambda: formats.encode([1.0], "e4m3", "up"), "expected one of rne ta rtz sr near, got up"),
    (lambda: formats.encode([1.0], "e4m3", "hr"), "expected"),
    (lambda: formats.encode(["a"], "e4m3"), "expected values of float32"),
    (lambda: formats.encode(np.array([1j]), "e4m3"), "expected values of float32"),
    (lambda: formats.encode([1.0, 2.0], "e4m3", "sr", bits=[1]), "expected 2 random words"),
    (lambda: formats.decode(np.zeros(3, np.uint8)), "expected a format's name|expected codes"),
    (lambda: formats.decode(np.zeros(3, np.uint16), "e4m3"), "expected codes of e4m3"),
    (lambda: formats.decode(np.zeros(3, np.float32), "e4m3"), "expected codes of e4m3"),
    (lambda: formats.quantize([[1.0]], granularity="2x3"), "expected"),
    (lambda: formats.quantize([[1.0]], "bf16"), "8-bit|expected"),
    (lambda: formats.quantize([[1.0]], granularity="16x16", expand=True), "expected granularity"),
    (lambda: formats.quantize([[1.0]], moment="w"), "expected moment m or v"),
    (lambda: formats.quantize([[1.0]], moment="v"), "moment: expected it with an expansion alone, got v"),
    (lambda: formats.quantize([[1.0]], expand="no"), "expand: expected True or False, got 'no'"),
    (lambda: formats.encode([1.0], "e4m3", saturate="no"), "saturate: expected True or False, got 'no'"),
    (lambda: formats.dequantize(formats.quantize([[1.0]]), np.ones((2, 1), np.float32)),
     "scale: expected none beside a Quantized, which has its own, got ndarray"),
    (lambda: formats.dequantize(formats.quantize([[1.0]]), meta=np.ones((2, 1), np.uint32)), "meta: expected none beside a Quantized"),
    (lambda: formats.dequantize(formats.quantize([[1.0]]), format="e5m2"), "format: expected e4m3, as the Quantized says, or none, got e5m2"),
    (lambda: formats.dequantize(formats.quantize([[1.0]], "e5m2"), format="e4m3"), "format: expected e5m2, as the Quantized says, or none, got e4m3"),
    (lambda: formats.dequantize(formats.quantize([[1.0]]), format=np.ones(2)), "format: expected a text, got ndarray"),
    (lambda: formats.dequantize(np.zeros((1, 1), np.uint8)), "expected codes with scale or with meta"),
    (lambda: formats.dequantize(np.zeros((4, 4), np.uint8), np.ones((3, 1), np.float32)), "scale|expected"),
    (lambda: formats.dequantize(np.zeros((4, 4), np.uint8), meta=np.ones(3, np.uint32), granularity="1x16"), "want 16 codes and 1 metadata"),
])
def test_mistakes_are_errors_of_one_line(call, text):
    with pytest.raises(octet.Error, match=text) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert caught.value.code in ("invalid_argument", "bad_data")


def test_errors_are_the_programs(program):
    message = program("formats", "decode", "--format", "e9m9", code=2)
    with pytest.raises(octet.Error) as caught:
        formats.decode(np.zeros(1, np.uint8), "e9m9")
    assert message.strip() == f"octet: {caught.value}"
    assert caught.value.exit_code == 2


class Exported:
    """An array that only DLPack can see."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnAnotherDevice(Exported):
    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **options):
        raise BufferError("not on this device")


def test_any_array_that_exports_dlpack_is_read():
    x = hostile_floats(100, seed=4)
    assert same_bits(formats.encode(Exported(x), "e4m3"), formats.encode(x, "e4m3"))
    for call, text in (
            (lambda: formats.encode(OnAnotherDevice(x), "e4m3"), "copy it to the CPU first|that PyTorch takes through DLPack, got"),
            (lambda: formats.quantize(OnAnotherDevice(x)), "copy it to the CPU first|that PyTorch takes through DLPack, got"),
            (lambda: formats.encode(x, "e4m3", out=OnAnotherDevice(np.empty(100, np.uint8))),
             "expected an array in the CPU's memory, got one on cuda:0: copy it")):
        with pytest.raises(octet.Error, match=text) as caught:
            call()
        assert "\n" not in str(caught.value) and caught.value.code == "device"


def test_other_threads_run_meanwhile():
    import threading
    import time
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    x = np.ones(1 << 22, np.float32)
    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.perf_counter()
    formats.encode(x, "hif8", "sr")
    end = time.perf_counter()
    done.set()
    thread.join()
    n_meanwhile = sum(begin < t < end for t in ticks)
    assert n_meanwhile >= 3 or end - begin < 0.02, (n_meanwhile, end - begin)


FLOAT8 = [name for name in ("float8_e4m3", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "float8_e3m4", "float8_e5m2",
                            "float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn", "int4", "uint4") if hasattr(ml_dtypes, name)]
OWN = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float8_e8m0fnu": "e8m0"}


@pytest.mark.parametrize("name", FLOAT8)
def test_a_type_is_decoded_as_its_own_format_or_refused_by_name(name):
    codes = np.arange(1, 9, dtype=np.uint8).view(getattr(ml_dtypes, name))
    for format in ("e4m3", "e5m2", "hif8", "int8", "e8m0", "de8s"):
        if OWN.get(name) == format:
            assert same_bits(formats.decode(codes, format), codes.astype(np.float32))
            assert formats.encode(codes.astype(np.float32), format, "floor" if format == "e8m0" else "near", out=codes.copy()) is not None
            continue
        out = np.zeros(8, codes.dtype)
        for call in (lambda: formats.decode(codes, format), lambda: formats.dequantize(codes, np.ones((1, 1), np.float32), format=format),
                     lambda: formats.encode(np.ones(8, np.float32), format, out=out)):
            with pytest.raises(octet.Error, match=f"expected codes of {format}, 1 bytes each, got {name}|has no scales|format") as caught:
                call()
            assert "\n" not in str(caught.value) and isinstance(caught.value, ValueError)
        assert not out.view(np.uint8).any()
    if name not in OWN:
        with pytest.raises(octet.Error, match=f"expected a format's name, since {name}"):
            formats.decode(codes)


def test_codes_of_booleans_and_structures_are_refused():
    for codes in (np.ones(4, bool), np.zeros(4, [("a", np.uint8)]), np.array([b"a", b"b"]), np.zeros(4, "V1")):
        with pytest.raises(octet.Error, match="expected codes of e4m3"):
            formats.decode(codes, "e4m3")


def test_masked_arrays_are_refused_and_other_classes_taken():
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    for masked in (np.ma.masked_greater(x, 1), np.ma.array(x)):
        for call in (lambda: formats.encode(masked, "e4m3"), lambda: formats.quantize(masked), lambda: formats.encode(x, "e4m3", out=masked),
                     lambda: formats.decode(np.ma.array(x.astype(np.uint8)), "e4m3")):
            with pytest.raises(octet.Error, match="expected an array without a mask") as caught:
                call()
            assert isinstance(caught.value, ValueError) and "\n" not in str(caught.value)
    expected = formats.encode(x.reshape(2, 4), "e4m3")
    for of_class in (np.matrix(x.reshape(2, 4)), x.reshape(2, 4).view(np.recarray)):
        assert same_bits(formats.encode(of_class, "e4m3"), expected)


def test_tensors_of_other_float8_types_are_refused_by_name():
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    for name in ("float8_e4m3fnuz", "float8_e5m2fnuz", "complex64", "qint8"):
        if name == "qint8":
            tensor = torch.quantize_per_tensor(torch.ones(4), 1.0, 0, torch.qint8)
        else:
            tensor = torch.ones(4).to(getattr(torch, name))
        for call in (lambda: formats.decode(tensor, "e4m3"), lambda: formats.decode(tensor), lambda: formats.encode(tensor, "e4m3")):
            with pytest.raises(octet.Error, match=name) as caught:
                call()
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("call", [
    lambda: formats.encode(np.zeros(2, np.float32), "e9m9"), lambda: formats.encode(np.zeros(2, np.float32), 3),
    lambda: formats.encode(np.zeros(2, np.float32), "e4m3", seed=-1), lambda: formats.encode(np.zeros(2, np.float32), "e4m3", rounding=None),
    lambda: formats.encode(np.zeros(2, np.float32), "e4m3", "sr", bits=np.zeros(3, np.uint32)),
    lambda: formats.encode(np.zeros(2, np.float32), "e4m3", "sr", bits=np.zeros(2, np.float32)),
    lambda: formats.encode([[1.0], [1.0, 2.0]], "e4m3"), lambda: formats.encode(np.array(["a"]), "e4m3"),
    lambda: formats.dequantize(np.zeros(4, np.uint8), meta=np.zeros(1, np.float64)), lambda: formats.quantize(np.zeros(4, np.float32), math=1),
    lambda: formats.dequantize(np.zeros(4, np.uint8), meta=np.zeros(1, np.uint8)), lambda: octet.plan({"model": {"hidden": 7, "heads": 2}}),
    lambda: octet.run("eval", model="nowhere"),
])
def test_errors_of_wrong_arguments_are_value_errors(call):
    with pytest.raises(ValueError) as caught:
        call()
    assert isinstance(caught.value, octet.Error) and "\n" not in str(caught.value)


def test_errors_keep_their_class_when_they_travel():
    import pickle
    for code, is_value in (("invalid_argument", True), ("bad_data", True), ("io", False), ("device", False), ("internal", False)):
        error = octet.Error("[a] expected b, got c", code)
        for one in (error, pickle.loads(pickle.dumps(error))):
            assert isinstance(one, octet.Error) and isinstance(one, ValueError) == is_value and type(one).__name__ == "Error"
            assert (str(one), one.code) == ("[a] expected b, got c", code)

    class Mine(octet.Error):
        pass

    assert type(Mine("x", "io")) is Mine and not isinstance(Mine("x"), ValueError)
