"""Arguments that are checked where they are given. Errors: "[WHERE] NAME: expected X, got Y"."""

from __future__ import annotations

import numbers
import os
from collections.abc import Iterable

from ._error import Error

MAX_F32 = 3.4028234663852886e38
_SHOWN = 80  # characters of a value


def shown(value) -> str:
    """A value in one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else f"{type(value).__name__} {text[: _SHOWN - 3]}..."


def refuse(where: str, name: str, expected: str, value):
    raise Error(f"[{where}] {name}: expected {expected}, got {shown(value)}")


def text(where: str, **given) -> None:
    for name, value in given.items():
        if not isinstance(value, str):
            refuse(where, name, "a text", value)


def texts(where: str, name: str, values) -> list[str]:
    """As a list; a text alone is none, as its letters would be taken for names."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        refuse(where, name, "a list of texts", values)
    values = list(values)
    text(where, **{f"{name}[{i}]": value for i, value in enumerate(values)})
    return values


def one_of(where: str, name: str, value, known, expected: str | None = None) -> None:
    if not (value is None or isinstance(value, str)) or value not in tuple(known):
        refuse(where, name, expected or f"one of {' '.join(map(str, known))}", value)


def flag(where: str, **given) -> None:
    for name, value in given.items():
        if type(value).__name__ not in ("bool", "bool_"):  # of NumPy, too
            refuse(where, name, "True or False", value)


def integer(where: str, name: str, value, least: int, most: int = 2**63 - 1) -> int:
    is_right = isinstance(value, numbers.Integral) and not isinstance(value, bool) and least <= value <= most
    if not is_right:
        refuse(where, name, f"an integer from {least} to {most}" if most < 2**62 else f"an integer of {least} or more", value)
    return int(value)


def integers(where: str, name: str, values, least: int, most: int) -> tuple[int, ...]:
    """One or more."""
    if not isinstance(values, (list, tuple)) or not values:
        refuse(where, name, "a list of integers", values)
    return tuple(integer(where, f"{name}[{i}]", value, least, most) for i, value in enumerate(values))


def number(where: str, name: str, value, least: float = -MAX_F32, most: float = MAX_F32) -> float:
    """A finite one; by default of those that float32 holds."""
    is_right = isinstance(value, numbers.Real) and type(value).__name__ not in ("bool", "bool_") and least <= value <= most
    if not is_right:
        about = f" from {least:g} to {most:g}" if most < MAX_F32 else "" if least < 0 else f" of {least:g} or more"
        refuse(where, name, f"a finite number{about}", value)
    return float(value)


def path(where: str, **given) -> None:
    for name, value in given.items():
        if not isinstance(value, (str, os.PathLike)):
            refuse(where, name, "a path", value)


def function(where: str, **given) -> None:
    for name, value in given.items():
        if not callable(value):
            refuse(where, name, "a function", value)


def table(where: str, name: str, value, check) -> dict:
    """A dict with texts as keys; check(name, value) gives each value. None: an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        refuse(where, name, "a dict of names", value)
    return {key: check(f"{name}['{key}']", one) for key, one in value.items()}
