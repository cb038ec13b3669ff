"""The CUDA module's AdamW (src/backends/cuda/optimizer_api.h) through ctypes. Addresses and streams go in as numbers."""

from __future__ import annotations

import ctypes

from ._cuda_module import ADDRESS, INT, load, table_of
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

_Table = table_of({
    "open": (INT, ADDRESS, ADDRESS),
    "close": (None, ADDRESS),
    "plan": (INT, ADDRESS, ADDRESS, ctypes.c_int64, ADDRESS),
    "place": (INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS),
    "write_numbers": (INT, ADDRESS, ADDRESS, ctypes.c_int32, ADDRESS),
    "write_gradients": (INT, ADDRESS, ADDRESS, ctypes.c_int64, ADDRESS),
    "squares": (INT, ADDRESS, ADDRESS),
    "step": (INT, ADDRESS, ctypes.c_double, ctypes.c_int32, ADDRESS),
    "one_by_one": (INT, ADDRESS, ctypes.c_int32),
})

_loaded = None


def api():
    """The module's functions, loaded once."""
    global _loaded
    if _loaded is None:
        _loaded = load("octet_cuda_optimizer_api", _Table, VERSION, "optimizer")
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
