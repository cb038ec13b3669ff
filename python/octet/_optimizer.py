"""The optimizer's C interface (octet_optimizer.h) through ctypes. Addresses go in; memory is the caller's."""

from __future__ import annotations

import ctypes
import numbers
from pathlib import Path

from ._error import Error

VERSION = 3
F32, BF16, FP16 = 0, 1, 2
NO_MASTER, REMAINDER, MASTER_F32 = 0, 1, 2
_CODES = ("invalid_argument", "bad_data", "io", "numerics", "device", "internal", "rank_lost")


def struct(name: str, fields: str) -> type[ctypes.Structure]:
    types = {"s": ctypes.c_char_p, "p": ctypes.c_void_p, "q": ctypes.c_int64, "Q": ctypes.c_uint64,
             "i": ctypes.c_int32, "I": ctypes.c_uint32, "d": ctypes.c_double, "B": ctypes.c_uint8, "3": ctypes.c_uint8 * 3}
    pairs = [field.split(":") for field in fields.split()]
    return type(name, (ctypes.Structure,), {"_fields_": [(field, types[kind]) for field, kind in pairs]})


Options = struct("Options", "state_m:s state_v:s master:s math:s group:q seed:I n_threads:i")
Layout = struct("Layout", "m_bytes:i v_bytes:i m_groups:q v_groups:q master:i reserved:i")
Tensor = struct("Tensor", "weight:p gradient:p master:p m:p v:p m_meta:p v_meta:p n:q name:Q lr:d beta1:d beta2:d eps:d "
                           "weight_decay:d t:p dtype:i gradient_dtype:i")
Step = struct("Step", "clip:d attempt:I skip_nonfinite:i skipped:i has_squares:i grad_norm:d squares:d")
Formats = struct("Formats", "m_dtype:B m_expand:B m_stochastic:B v_dtype:B v_expand:B v_stochastic:B exact:B wide:3 store:3 "
                            "reserved:3")
Moment = struct("Moment", "which:i reserved:i stored:p meta:p values:p n:q")

_library = None


def library() -> ctypes.CDLL:
    """The library beside this file, loaded once."""
    global _library
    if _library is None:
        path = Path(__file__).parent / "liboctet_optimizer.so"
        try:
            loaded = ctypes.CDLL(str(path))
        except OSError as error:
            raise Error(f"[optimizer] expected the library {path}, got: {error}", "device") from None
        loaded.octet_optimizer_error.restype = ctypes.c_char_p
        loaded.octet_optimizer_name.restype = ctypes.c_uint64
        pointer = ctypes.c_void_p
        loaded.octet_optimizer_squares.argtypes = [pointer, pointer, ctypes.c_int64, pointer]
        loaded.octet_optimizer_step.argtypes = [pointer, pointer, ctypes.c_int64, pointer]
        loaded.octet_optimizer_layout.argtypes = [pointer, ctypes.c_int64, ctypes.c_int32, pointer]
        loaded.octet_optimizer_formats.argtypes = [pointer, pointer]
        loaded.octet_optimizer_decode.argtypes = loaded.octet_optimizer_encode.argtypes = [pointer, pointer]
        loaded.octet_optimizer_close.argtypes = [pointer]
        loaded.octet_optimizer_close.restype = None
        if loaded.octet_optimizer_version() != VERSION:
            raise Error(f"[optimizer] {path}: expected version {VERSION}, got {loaded.octet_optimizer_version()}", "device")
        _library = loaded
    return _library


def name_hash(name: str) -> int:
    """What a parameter's random bits are keyed by."""
    return library().octet_optimizer_name(name.encode())


class Kernels:
    """An open optimizer. Names as in the configuration: state_m, state_v (f32, bf16, e4m3+x, ...), master, math."""

    def __init__(self, state_m: str, state_v: str, master: str, math: str, group: int, seed: int = 0, threads: int = 0):
        self._handle = ctypes.c_void_p()
        self._library = library()
        for name, value in {"state_m": state_m, "state_v": state_v, "master": master, "math": math}.items():
            if not isinstance(value, str):
                raise Error(f"[optimizer] {name}: expected a text, got {type(value).__name__}")
        for name, value in {"group": group, "seed": seed, "threads": threads}.items():
            if isinstance(value, bool) or not isinstance(value, numbers.Integral):
                raise Error(f"[optimizer] {name}: expected an integer, got {value!r}")
        options = Options(state_m.encode(), state_v.encode(), master.encode(), math.encode(), int(group),
                          int(seed) & 0xFFFFFFFF, int(threads))
        self._check(self._library.octet_optimizer_open(ctypes.byref(options), ctypes.byref(self._handle)))

    def __del__(self):
        if getattr(self, "_handle", None):
            self._library.octet_optimizer_close(self._handle)
            self._handle = None

    def layout(self, n: int, dtype: int):
        """What the states of a weight of n elements are: a Layout."""
        result = Layout()
        self._check(self._library.octet_optimizer_layout(self._handle, n, dtype, ctypes.byref(result)))
        return result

    def formats(self):
        """The options as the numbers that the CUDA module knows: a Formats."""
        result = Formats()
        self._check(self._library.octet_optimizer_formats(self._handle, ctypes.byref(result)))
        return result

    def squares(self, tensors, count: int) -> float:
        """The sum of squares of the gradients of an array of Tensor; NaN where one is not finite."""
        result = ctypes.c_double()
        self._check(self._library.octet_optimizer_squares(self._handle, tensors, count, ctypes.byref(result)))
        return result.value

    def step(self, tensors, count: int, clip: float, attempt: int, skip_nonfinite: bool = True, squares: float | None = None):
        """One update of an array of Tensor: a Step, with grad_norm and skipped. squares: of all gradients, where they are
        more than these."""
        result = Step(clip, attempt & 0xFFFFFFFF, int(skip_nonfinite), 0, int(squares is not None), 0.0, squares or 0.0)
        self._check(self._library.octet_optimizer_step(self._handle, tensors, count, ctypes.byref(result)))
        return result

    def decode(self, which: int, stored: int, meta: int | None, values: int, n: int) -> None:
        moment = Moment(which, 0, stored, meta, values, n)
        self._check(self._library.octet_optimizer_decode(self._handle, ctypes.byref(moment)))

    def encode(self, which: int, values: int, stored: int, meta: int | None, n: int) -> None:
        moment = Moment(which, 0, stored, meta, values, n)
        self._check(self._library.octet_optimizer_encode(self._handle, ctypes.byref(moment)))

    def _check(self, status: int) -> None:
        if status != 0:
            raise Error(self._library.octet_optimizer_error().decode(), _CODES[status - 1])
