"""Octet: large language models in 8-bit floating point.

    octet.optim.AdamW        a torch.optim.Optimizer with 8-bit states
    octet.torch              COAT's activations and 8-bit linears inside PyTorch models
    octet.formats            encode, decode, quantize, dequantize
    octet.graph              functions of your own: differentiated, scaled, quantized, run
    octet.plan, octet.train  what a run will take, and the run itself
    octet.load               a trained model: logits, nll, generate, weights
    octet.study              error studies as arrays
    octet.prove              other stacks against exact definitions
    octet.run                any other command of the program
    octet.Error              every error, one line

The parts are loaded when they are first used.
"""

from __future__ import annotations

import importlib

from ._error import Error
from ._version import __version__

_MODULES = ("formats", "graph", "optim", "prove", "study", "torch")
_FUNCTIONS = {"load": "._model", "plan": "._plan", "run": "._program", "train": "._train"}

__all__ = ["Error", "__version__", *_MODULES, *_FUNCTIONS]


def __getattr__(name: str):
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _FUNCTIONS:
        value = getattr(importlib.import_module(_FUNCTIONS[name], __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'octet' has no attribute '{name}'")


def __dir__():
    return sorted(__all__)
