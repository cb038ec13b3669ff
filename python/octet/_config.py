"""Configurations as Python has them: a file's path, a recipe's name, or a dict of the same keys."""

from __future__ import annotations

import json
import os

from ._error import Error
from ._program import run, sets_of


def call_of(config, set=None):
    """The configuration as the native side takes it."""
    from . import _native
    if isinstance(config, dict):
        return _native.ConfigCall("", text_of(config), sets_of(set))
    if isinstance(config, (str, os.PathLike)):
        return _native.ConfigCall(_file_of(os.fspath(config)), "", sets_of(set))
    raise Error(f"[config] expected a file's path or a dict, got {type(config).__name__}")


def _file_of(config: str) -> str:
    """The file that the program would take: a word that is no file is a recipe's name."""
    if "/" not in config and not os.path.exists(config):
        for recipe in run("recipes"):
            if recipe["recipe"] == config:
                return recipe["file"]
    if not os.path.exists(config) or os.path.isdir(config):
        run("plan", config)  # which says what is meant by such a word
    return config


def text_of(config: dict) -> str:
    """As YAML, of which JSON is a part."""
    try:
        return json.dumps(config, default=os.fspath)
    except (TypeError, ValueError) as error:
        raise Error(f"[config] expected values that YAML has, got: {error}") from None
