"""Data sets of other programs as the JSONL that Octet reads:

    python -m octet.data to-jsonl FILE.parquet|DIR... OUT.jsonl [--columns A,B] [--rename OLD=NEW]... [--limit N]

A row becomes a line, a JSON object of its columns in their order. Values are those of Arrow: text, numbers, true and false, lists, structures
(objects), maps (lists of pairs); times as ISO 8601, durations in seconds; nulls are null. Bytes, and numbers that are not finite, have
no JSON: they end the conversion with the column and the file's row, as times of day and durations with parts of a microsecond do. A folder
stands for its *.parquet files in the order of their names. All files must have the columns of the first, of the same kinds (numbers, text,
lists of them, ...). Needs the package pyarrow (`pip install octet[parquet]`). Exit status: 0, or 2 with one line that says why."""

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


def _one_line(error: BaseException) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(error)).split())


def _path(name: str, path) -> Path:
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise BadData(f"{name}: expected a path, got {path!r}")
    return Path(path)


def _check(columns, rename, limit) -> None:
    is_list = isinstance(columns, Iterable) and not isinstance(columns, (str, bytes))
    if columns is not None and not (is_list and columns and all(isinstance(name, str) for name in columns)):
        raise BadData(f"columns: expected a list of one name or more, got {columns!r}")
    are_names = isinstance(rename, dict) and all(isinstance(name, str) and name for pair in rename.items() for name in pair)
    if rename is not None and not are_names:
        raise BadData(f"rename: expected a dict of names, got {rename!r}")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise BadData(f"expected a limit of 0 or more, got {limit!r}")
    if limit is not None and limit < 0:
        raise BadData(f"expected a limit of 0 or more, got {limit}")


def _parquet_files(paths: Iterable) -> list[Path]:
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    if not isinstance(paths, Iterable):
        raise BadData(f"paths: expected a list of paths, got {paths!r}")
    files = []
    for path in (_path("paths", path) for path in paths):
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
    if not have:
        raise BadData(f"{file}: expected columns, got none")
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
        raise BadData(f"{file}: expected a Parquet file, got {_one_line(error)}") from None


def _kind(type):
    """What values of a type are in JSON: None where there are nulls alone, a word, (a kind of lists,), or kinds by the names of fields."""
    from pyarrow import types
    if types.is_dictionary(type):
        return _kind(type.value_type)
    if types.is_null(type):
        return None
    if types.is_map(type):
        return (_kind(type.key_type), _kind(type.item_type))
    if types.is_nested(type):
        fields = {field.name: _kind(field.type) for field in (type.field(i) for i in range(type.num_fields))}
        return fields if types.is_struct(type) else (*fields.values(),)
    if types.is_integer(type) or types.is_floating(type):
        return "number"
    if types.is_string(type) or types.is_large_string(type) or type == "string_view":
        return "text"
    words = {"date": types.is_date, "time": types.is_time, "timestamp": types.is_timestamp, "duration": types.is_duration,
             "decimal": types.is_decimal}
    return next((word for word, is_word in words.items() if is_word(type)), str(type))


def _is_same(a, b) -> bool:
    """Whether rows of both kinds may stand in one file."""
    if a is None or b is None:
        return True
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_is_same(a[key], b[key]) for key in a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_is_same, a, b))
    return a == b


def _check_kinds(schema, first, columns: list[str], file: Path) -> None:
    """`first`: the schema of the first file."""
    for name in columns:
        got, expected = schema.field(name).type, first.field(name).type
        if not _is_same(_kind(got), _kind(expected)):
            raise BadData(f"{file}: column '{name}': expected {expected}, as the first file has it, got {got}")


def _in_microseconds(type):
    """The type with times of day and durations in microseconds, which Python has; nanoseconds it would round off."""
    import pyarrow
    if type == pyarrow.time64("ns"):
        return pyarrow.time64("us")
    if type == pyarrow.duration("ns"):
        return pyarrow.duration("us")
    if pyarrow.types.is_struct(type):
        return pyarrow.struct([field.with_type(_in_microseconds(field.type)) for field in (type.field(i) for i in range(type.num_fields))])
    for is_kind, make in ((pyarrow.types.is_list, pyarrow.list_), (pyarrow.types.is_large_list, pyarrow.large_list)):
        if is_kind(type):
            return make(type.value_field.with_type(_in_microseconds(type.value_type)))
    if pyarrow.types.is_fixed_size_list(type):
        return pyarrow.list_(type.value_field.with_type(_in_microseconds(type.value_type)), type.list_size)
    if pyarrow.types.is_map(type):
        return pyarrow.map_(_in_microseconds(type.key_type), type.item_field.with_type(_in_microseconds(type.item_type)))
    return type


def _rows(rows, columns: list[str], file: Path):
    import pyarrow
    batches = rows.iter_batches(batch_size=ROWS, columns=columns)
    while True:
        try:
            batch = next(batches, None)
        except (OSError, pyarrow.ArrowException) as error:
            raise BadData(f"{file}: expected a whole Parquet file, got {_one_line(error)}") from None
        if batch is None:
            return
        try:
            schema = pyarrow.schema([field.with_type(_in_microseconds(field.type)) for field in batch.schema])
            made = (batch if schema == batch.schema else pyarrow.Table.from_batches([batch]).cast(schema)).to_pylist()
        except (ValueError, OverflowError, pyarrow.ArrowException) as error:
            raise BadData(f"{file}: expected values that Python has, got {_one_line(error)}") from None
        yield from made


def to_jsonl(paths: Iterable, out, columns: Iterable[str] | None = None, rename: dict[str, str] | None = None,
             limit: int | None = None) -> int:
    """Writes the file `out`, whose name must be free, and returns its lines. Raises BadData."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise BadData(f"Parquet needs the package pyarrow: {error}") from None
    out, n, names, first = _path("out", out), 0, None, None
    part = out.with_name(out.name + ".part")
    if out.exists():
        raise BadData(f"{out}: expected a name that is free, got one that is there")
    _check(columns, rename, limit)
    files = _parquet_files(paths)
    try:
        lines = open(part, "x", encoding="utf-8")
    except FileExistsError:
        raise BadData(f"{part}: expected a name that is free, got one that is there") from None
    except OSError as error:
        raise BadData(f"{part}: {error.strerror or error}") from None
    try:
        with lines:
            for file in files:
                with _open(file) as rows:
                    found = _names(columns, rename or {}, rows.schema_arrow.names, file)
                    if names is not None and found != names:
                        raise BadData(f"{file}: expected the columns {', '.join(names)}, got {', '.join(found)}")
                    first = first or rows.schema_arrow
                    _check_kinds(rows.schema_arrow, first, list(found), file)
                    names = found
                    for row, values in enumerate(_rows(rows, list(names), file)):
                        if n == limit:
                            break
                        lines.write(_line(values, names, file, row) + "\n")
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
    if not (old and equals and new) or "=" in new:
        raise argparse.ArgumentTypeError(f"expected OLD=NEW, got '{text}'")
    return old, new


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m octet.data", description=__doc__.splitlines()[0])
    command = parser.add_subparsers(dest="command", required=True).add_parser("to-jsonl", allow_abbrev=False,
                                                                              help="Parquet files as one JSONL file")
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
