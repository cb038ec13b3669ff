"""The CUDA module's number formats (src/backends/cuda/formats_api.h) through ctypes. Addresses and streams go in as numbers."""

from __future__ import annotations

import ctypes

from ._cuda_module import ADDRESS, INT, load, table_of
from ._error import Error
from ._optimizer import struct

VERSION = 1
Encoding = struct("Encoding", "values:p codes:p bits:p n:q device:i seed:I format:B rounding:B source:B saturate:B nan_to_zero:B "
                              "reserved:3")
Decoding = struct("Decoding", "codes:p values:p n:q device:i format:B reserved:3")
Tiles = struct("Tiles", "rows:q cols:q tile_rows:q tile_cols:q grid_rows:q grid_cols:q x:p codes:p of_tiles:p scratch:p nonfinite:p "
                        "device:i format:B bf16_scales:B second_moment:B fast:B")
_Table = table_of({name: (INT, ADDRESS, ADDRESS) for name in ("encode", "decode", "quantize", "dequantize", "expand", "contract")})

_loaded = None


def api():
    """The module's functions, loaded once."""
    global _loaded
    if _loaded is None:
        _loaded = load("octet_cuda_formats_api", _Table, VERSION, "formats")
    return _loaded


def run(name: str, call: ctypes.Structure, stream: int) -> None:
    """Queues the function with this name on a cudaStream_t."""
    table = api()
    if getattr(table, name)(ctypes.byref(call), stream) != 0:
        raise Error(table.last_error().decode(), "device")
