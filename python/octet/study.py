"""Error studies, as arrays: what `octet study` finds and writes (docs/studies.md)."""

from __future__ import annotations

import csv
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from . import _program

__all__ = ["Study", "activations", "formats", "states", "tensors"]


@dataclass
class Study:
    """table: its columns by name, what the program prints.  sheets: those of every file, by its name without the ending, x
    first; figures are drawn from them. Columns of numbers are float64 (NaN where there is none), others text."""

    table: dict[str, np.ndarray]
    sheets: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)


def formats(samples: int = 1 << 20, **flags) -> Study:
    """Signal to noise, dB, of normal numbers of every size in every format; significand bits over the exponent.

    samples: normal numbers for each figure. Source: Luo et al. 2024, figure 1."""
    return _study("formats", samples=samples, **flags)


def states(run, *, group: int = 128, eps: float = 1e-8, **flags) -> Study:
    """Mean square error of m / (sqrt(v) + eps) when a run's f32 moments are stored in eight bits: rows by the format of m,
    columns by that of v. Source: Xi et al., COAT, ICLR 2025, table 1."""
    return _study("states", run, group=group, eps=eps, **flags)


def activations(model, data, *, rows: int = 4, seq: int = 0, tokenizer=None, **flags) -> Study:
    """Signal to noise, dB, of the inputs of a model's norms in E4M3: one scale for the tensor, for groups, for blocks.

    model: a run, one of its checkpoints, or a folder.  data: text, folders or token shards, one or a list."""
    data = data if isinstance(data, (list, tuple)) else [data]
    return _study("activations", model=model, data=list(data), rows=rows, seq=seq, tokenizer=tokenizer, **flags)


def tensors(file, **flags) -> Study:
    """The tensors of a safetensors file: range, and signal to noise, dB, in each format."""
    return _study("tensors", file, **flags)


def _study(name, *arguments, **flags) -> Study:
    with tempfile.TemporaryDirectory() as folder:
        rows = _program.run("study", name, *arguments, out=folder, **flags)
        sheets = {path.stem: _read(path) for path in sorted(Path(folder).glob("*.csv"))}
    columns = list(rows[0]) if rows else []
    return Study({column: _array([row[column] for row in rows]) for column in columns}, sheets)


def _read(path) -> dict[str, np.ndarray]:
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return {name: _array([row[i] for row in rows]) for i, name in enumerate(header)}


def _array(cells) -> np.ndarray:
    try:
        return np.array([float("nan") if cell in ("", None) else float(cell) for cell in cells])
    except (TypeError, ValueError):
        return np.array(["" if cell is None else str(cell) for cell in cells])
