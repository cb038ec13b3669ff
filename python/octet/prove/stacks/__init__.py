"""Adapters: one small file a stack. Each says which package it needs and what it covers, and gives proofs."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util

from ..._error import Error

__all__ = ["NAMES", "Stack", "find"]

# By name; the file of torchao.mx is torchao_mx.py.
NAMES = ("torch", "ml_dtypes", "jax", "en_dtypes", "gfloat", "torchao.float8", "torchao.mx", "torchao.optim", "onnxruntime",
         "compressed_tensors", "transformers.fp8", "bitsandbytes", "flashoptim")


class Stack:
    """module: with PACKAGES (the names under which they are imported), COVERS, DEVICES and proofs(device), which gives pairs of a name
    and a function that makes a Result."""

    def __init__(self, name: str):
        self.name = name
        self._module = importlib.import_module(f".{name.replace('.', '_')}_", __name__)
        self.covers, self.devices = self._module.COVERS, self._module.DEVICES

    @property
    def missing(self) -> list[str]:
        return [package for package in self._module.PACKAGES if importlib.util.find_spec(package) is None]

    @property
    def versions(self) -> str:
        return ", ".join(_version(package) for package in self._module.PACKAGES if package not in self.missing)

    def proofs(self, device: str):
        return self._module.proofs(device)


@functools.cache
def _distributions():
    return importlib.metadata.packages_distributions()


def _version(package: str) -> str:
    """The distribution that a package is of, and its version."""
    names = _distributions().get(package)
    return f"{names[0]} {importlib.metadata.version(names[0])}" if names else package


def find(names) -> list[Stack]:
    """Those of the names, all of them by default; octet.Error for one that is none."""
    for name in names:
        if name not in NAMES:
            raise Error(f"[prove] expected stacks of {' '.join(NAMES)}, got {name}")
    return [Stack(name) for name in dict.fromkeys(names or NAMES)]
