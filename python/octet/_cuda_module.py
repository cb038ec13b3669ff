"""The CUDA module (liboctet_cuda.so) through ctypes: where it is, and the tables of functions that it exports."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from ._error import Error

INT, ADDRESS = ctypes.c_int, ctypes.c_void_p


def table_of(functions: dict) -> type[ctypes.Structure]:
    """A table: version, last_error, then these, name: (result, arguments...)."""
    fields = [("version", ctypes.c_int32), ("reserved", ctypes.c_int32), ("last_error", ctypes.CFUNCTYPE(ctypes.c_char_p)),
              *((name, ctypes.CFUNCTYPE(*types)) for name, types in functions.items())]
    return type("Table", (ctypes.Structure,), {"_fields_": fields})


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


def load(symbol: str, table: type[ctypes.Structure], version: int, who: str) -> ctypes.Structure:
    """The module's table of functions with this symbol; octet.Error where there is none of this version."""
    path = module_path()
    try:
        entry = getattr(ctypes.CDLL(str(path)), symbol)
    except (OSError, AttributeError) as error:
        raise Error(f"[{who}] expected the CUDA module {path} (OCTET_CUDA_MODULE says where it is), got: {error}",
                    "device") from None
    entry.restype = ctypes.POINTER(table)
    loaded = entry().contents
    if loaded.version != version:
        raise Error(f"[{who}] {path}: expected version {version}, got {loaded.version}", "device")
    return loaded
