"""What a proof gives: cases, how many are equal, the first difference, and which documented choices were seen."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from ._libraries import Refused, Wrong

__all__ = ["Clock", "Difference", "Result", "hexes", "table"]

COLUMNS = ("what", "cases", "equal", "seconds", "first difference: input", "expected", "got")
MAX_SHOWN = 6  # numbers of an input that a line shows


@dataclass
class Difference:
    """The smallest input found on which the definition and the stack differ.

    case: which inputs, layout, size or rule.  input, expected, got: bits or values as text.
    """

    case: str
    input: str
    expected: str
    got: str

    def line(self) -> str:
        return f"{self.case}: of {self.input} expected {self.expected}, got {self.got}"


@dataclass
class Result:
    """what: the function that was held.  cases, equal: values compared.  choices: documented choices that were seen.
    first: the first difference that no documented choice explains, None where there is none.
    skipped: why nothing was compared.  seconds: time taken.  `bool(result)`: values were compared, and all are equal."""

    what: str
    cases: int = 0
    equal: int = 0
    first: Difference | None = None
    choices: list[str] = field(default_factory=list)
    skipped: str = ""
    seconds: float = 0.0

    def __bool__(self) -> bool:
        return self.first is None and 0 < self.cases == self.equal

    def count(self, is_equal) -> None:
        """Counts the truths of an array."""
        is_equal = np.asarray(is_equal)
        self.cases += is_equal.size
        self.equal += int(np.count_nonzero(is_equal))

    def differ(self, case: str, given, expected, got) -> None:
        """Keeps the first one."""
        if self.first is None:
            self.first = Difference(case, str(given), str(expected), str(got))

    def chose(self, text: str) -> None:
        if text not in self.choices:
            self.choices.append(text)

    def row(self) -> tuple[str, ...]:
        if self.skipped:
            return (self.what, "-", "-", "-", f"skipped: {self.skipped}", "", "")
        first = ("", "", "") if self.first is None else (f"{self.first.case}: {self.first.input}", self.first.expected, self.first.got)
        return (self.what, str(self.cases), str(self.equal), f"{self.seconds:.1f}", *first)

    def __str__(self) -> str:
        lines = [table([self])]
        lines += [f"  chosen: {choice}" for choice in self.choices]
        return "\n".join(lines)


class Clock:
    """Writes the seconds of a block into a result, and how a stack ended it: Refused before the first case: skipped; later: a line of
    `choices`; Wrong: a difference. Other exceptions go on. `is_over` after `seconds`, None: never."""

    def __init__(self, result: Result, seconds: float | None = None):
        self.result, self.seconds, self.begin = result, seconds, time.perf_counter()

    def __enter__(self) -> "Clock":
        return self

    def __exit__(self, kind, error, trace) -> bool:
        self.result.seconds = time.perf_counter() - self.begin
        if isinstance(error, Wrong):
            self.result.differ("result", self.result.what, "its shape and type", str(error))
        elif isinstance(error, Refused) and self.result.cases == 0:
            self.result.skipped = str(error)
        elif isinstance(error, Refused):
            self.result.chose(f"not taken: {error}")
        return isinstance(error, (Refused, Wrong))

    @property
    def is_over(self) -> bool:
        return self.seconds is not None and time.perf_counter() - self.begin > self.seconds


def table(results) -> str:
    """Results as lines of equal columns."""
    rows = [COLUMNS, *(result.row() for result in results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def hexes(values) -> str:
    """Bits of an array's elements: the first ones, and how many there are."""
    array = np.ascontiguousarray(values).reshape(-1)
    words = array.view(f"u{array.itemsize}")
    shown = " ".join(f"0x{int(word):0{2 * array.itemsize}x}" for word in words[:MAX_SHOWN])
    return shown if array.size <= MAX_SHOWN else f"{shown} ... ({array.size} values)"
