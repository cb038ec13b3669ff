"""Data sets of other programs as the JSONL that Octet reads:

    python -m octet.data to-jsonl FILE.parquet|DIR... OUT.jsonl [--columns A,B] [--rename OLD=NEW]... [--limit N]

A row becomes a line, a JSON object of its columns in their order. Values are those of Arrow: text, numbers, true and false, lists, structures
(objects), maps (lists of pairs); times as ISO 8601; nulls are null. Bytes, and numbers that are not finite, have no JSON: they end
the conversion with the column and the row. A folder stands for its *.parquet files in the order of their names. All files must have
the columns of the first. Needs the package pyarrow (`pip install octet[parquet]`). Exit status: 0, or 2 with one line that says why."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["to_jsonl"]

ROWS = 1024  # that are in memory at a time


class BadData(Exception):
    """One line."""


def _parquet_files(paths: Iterable) -> list[Path]:
    files = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(path.glob("*.parquet"))
            if not inside:
                raise BadData(f"{path}: expected *.parquet files in the folder, got none")
            files += inside
        else:
            files.append(path)
    if not files:
        raise BadData("expected Parquet files, got none")
    return files


def _names(columns, rename, have: list[str], file: Path) -> dict[str, str]:
    """The keys of the lines, by column."""
    wanted = list(columns) if columns else have
    for name, known in [*((name, have) for name in wanted), *((name, wanted) for name in rename)]:
        if name not in known:
            raise BadData(f"{file}: expected a column '{name}', got {', '.join(known)}")
    keys = [rename.get(name, name) for name in wanted]
    if len(set(keys)) < len(keys):
        raise BadData(f"{file}: expected a name for each column, got one twice: {', '.join(keys)}")
    return dict(zip(wanted, keys, strict=True))


def _plain(value):
    """For json, of what Arrow gives besides its own types."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        raise ValueError("bytes")
    if hasattr(value, "total_seconds"):
        return value.total_seconds()
    return str(value)  # a decimal, whose digits a number would round


def _open(file: Path):
    import pyarrow
    import pyarrow.parquet
    try:
        return pyarrow.parquet.ParquetFile(file)
    except (OSError, pyarrow.ArrowException) as error:
        raise BadData(f"{file}: expected a Parquet file, got {' '.join(str(error).split())}") from None


def _rows(rows, columns: list[str], file: Path):
    import pyarrow
    try:
        for batch in rows.iter_batches(batch_size=ROWS, columns=columns):
            yield from batch.to_pylist()
    except pyarrow.ArrowException as error:
        raise BadData(f"{file}: expected a whole Parquet file, got {' '.join(str(error).split())}") from None
    except ValueError as error:
        raise BadData(f"{file}: expected values that Python has, got {' '.join(str(error).split())}") from None


def to_jsonl(paths: Iterable, out, columns: Iterable[str] | None = None, rename: dict[str, str] | None = None,
             limit: int | None = None) -> int:
    """Writes the file `out`, whose name must be free, and returns its lines. Raises BadData."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise BadData(f"Parquet needs the package pyarrow: {error}") from None
    out, n, names = Path(out), 0, None
    part = out.with_name(out.name + ".part")
    if out.exists():
        raise BadData(f"{out}: expected a name that is free, got one that is there")
    if limit is not None and limit < 0:
        raise BadData(f"expected a limit of 0 or more, got {limit}")
    try:
        lines = open(part, "x", encoding="utf-8")
    except FileExistsError:
        raise BadData(f"{part}: expected a name that is free, got one that is there") from None
    except OSError as error:
        raise BadData(f"{part}: {error.strerror or error}") from None
    try:
        with lines:
            for file in _parquet_files(paths):
                with _open(file) as rows:
                    found = _names(columns, rename or {}, rows.schema_arrow.names, file)
                    if names is not None and found != names:
                        raise BadData(f"{file}: expected the columns {', '.join(names)}, got {', '.join(found)}")
                    names = found
                    for row in _rows(rows, list(names), file):
                        if n == limit:
                            break
                        lines.write(_line(row, names, file, n) + "\n")
                        n += 1
        os.replace(part, out)
    except OSError as error:
        raise BadData(f"{out}: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)
    return n


def _line(row: dict, names: dict[str, str], file: Path, number: int) -> str:
    try:
        return json.dumps({names[key]: row[key] for key in names}, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:
        for key in names:
            try:
                json.dumps(row[key], allow_nan=False, default=_plain)
            except ValueError as error:
                what = "bytes" if str(error) == "bytes" else "a number that is not finite"
                raise BadData(f"{file}: row {number}, column '{key}': {what} has no JSON (--columns leaves a column out)") from None
        raise


def _pair(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise argparse.ArgumentTypeError(f"expected OLD=NEW, got '{text}'")
    return old, new


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m octet.data", description=__doc__.splitlines()[0])
    command = parser.add_subparsers(dest="command", required=True).add_parser("to-jsonl", help="Parquet files as one JSONL file")
    command.add_argument("paths", nargs="+", metavar="FILE.parquet|DIR")
    command.add_argument("out", metavar="OUT.jsonl")
    command.add_argument("--columns", type=lambda text: text.split(","), help="these alone, in this order")
    command.add_argument("--rename", type=_pair, action="append", default=[], metavar="OLD=NEW")
    command.add_argument("--limit", type=int, help="rows at most")
    flags = parser.parse_args(arguments)
    renamed = [old for old, _ in flags.rename]
    twice = [old for old in renamed if renamed.count(old) > 1]
    try:
        if twice:
            raise BadData(f"--rename: expected each column once, got '{twice[0]}' again")
        n = to_jsonl(flags.paths, flags.out, flags.columns, dict(flags.rename), flags.limit)
    except BadData as error:
        print(f"octet: [data] {error}", file=sys.stderr)
        return 2
    print(f"{flags.out}: {n} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
