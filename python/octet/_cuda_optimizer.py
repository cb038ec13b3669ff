"""The CUDA module's AdamW (src/backends/cuda/optimizer_api.h) through ctypes. Addresses and streams go in as numbers."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from ._error import Error
from ._optimizer import struct

VERSION = 1
CONTROL_BYTES = 64  # OctetCudaControl

Options = struct("Options", "device:i group:i m_dtype:B m_expand:B m_stochastic:B v_dtype:B v_expand:B v_stochastic:B "
                            "exact:B reserved:B seed:I")
Weight = struct("Weight", "weight:p master:p m:p v:p m_meta:p v_meta:p t:p n:q name:Q dtype:B gradient_dtype:B store:B "
                          "reserved:B numbers:i")
Numbers = struct("Numbers", "beta1:d beta2:d eps:d weight_decay:d lr:d lr_at:p")
Plan = struct("Plan", "table_bytes:q n_weights:q")

_INT, _ADDRESS = ctypes.c_int, ctypes.c_void_p
_FUNCTIONS = {  # in the order of the table, behind last_error
    "open": (_INT, _ADDRESS, _ADDRESS),
    "close": (None, _ADDRESS),
    "plan": (_INT, _ADDRESS, _ADDRESS, ctypes.c_int64, _ADDRESS),
    "place": (_INT, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS),
    "write_numbers": (_INT, _ADDRESS, _ADDRESS, ctypes.c_int32, _ADDRESS),
    "write_gradients": (_INT, _ADDRESS, _ADDRESS, ctypes.c_int64, _ADDRESS),
    "squares": (_INT, _ADDRESS, _ADDRESS),
    "step": (_INT, _ADDRESS, ctypes.c_double, ctypes.c_int32, _ADDRESS),
    "one_by_one": (_INT, _ADDRESS, ctypes.c_int32),
}


class _Api(ctypes.Structure):
    _fields_ = [("version", ctypes.c_int32), ("reserved", ctypes.c_int32), ("last_error", ctypes.CFUNCTYPE(ctypes.c_char_p)),
                *((name, ctypes.CFUNCTYPE(*types)) for name, types in _FUNCTIONS.items())]


_loaded = None


def module_path() -> Path:
    """Where the CUDA module lies: OCTET_CUDA_MODULE, else in the package, else where the program has it."""
    given = os.environ.get("OCTET_CUDA_MODULE")
    if given:
        return Path(given)
    package = Path(__file__).parent
    folder = (package / "bin" / "octet").resolve().parent
    places = [package / "liboctet_cuda.so", package / "bin" / "liboctet_cuda.so", folder / "liboctet_cuda.so",
              folder / "cuda" / "liboctet_cuda.so"]
    return next((place for place in places if place.exists()), places[1])


def api() -> _Api:
    """The module's functions, loaded once."""
    global _loaded
    if _loaded is None:
        path = module_path()
        try:
            entry = ctypes.CDLL(str(path)).octet_cuda_optimizer_api
        except (OSError, AttributeError) as error:
            raise Error(f"[optimizer] expected the CUDA module {path} (OCTET_CUDA_MODULE says where it is), got: {error}",
                        "device") from None
        entry.restype = ctypes.POINTER(_Api)
        table = entry().contents
        if table.version != VERSION:
            raise Error(f"[optimizer] {path}: expected version {VERSION}, got {table.version}", "device")
        _loaded = table
    return _loaded


class DeviceKernels:
    """An optimizer of the CUDA module. Streams are cudaStream_t as numbers; nothing waits for the device."""

    def __init__(self, options: Options):
        self._api, self._handle = api(), ctypes.c_void_p()
        self._check(self._api.open(ctypes.byref(options), ctypes.byref(self._handle)))

    def __del__(self):
        if getattr(self, "_handle", None):
            self._api.close(self._handle)
            self._handle = None

    def plan(self, weights, count: int) -> int:
        """Takes an array of Weight: how many bytes of the device the table needs."""
        result = Plan()
        self._check(self._api.plan(self._handle, weights, count, ctypes.byref(result)))
        return result.table_bytes

    def place(self, table: int, control: int, stream: int) -> None:
        self._check(self._api.place(self._handle, table, control, stream))

    def write_numbers(self, numbers, count: int, stream: int) -> None:
        self._check(self._api.write_numbers(self._handle, numbers, count, stream))

    def write_gradients(self, addresses, count: int, stream: int) -> None:
        self._check(self._api.write_gradients(self._handle, addresses, count, stream))

    def squares(self, stream: int) -> None:
        self._check(self._api.squares(self._handle, stream))

    def step(self, clip: float, has_squares: bool, stream: int) -> None:
        self._check(self._api.step(self._handle, clip, int(has_squares), stream))

    def one_by_one(self, is_wanted: bool) -> None:
        self._check(self._api.one_by_one(self._handle, int(is_wanted)))

    def _check(self, status: int) -> None:
        if status != 0:
            raise Error(self._api.last_error().decode(), "device")
