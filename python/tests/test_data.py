"""octet.data: Parquet as JSONL, with pyarrow where it is installed."""

import datetime
import decimal
import importlib.util
import json

import pytest
from octet import data

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS = [
    {"text": "one\n\u00e9\u4e00", "label": 1, "score": 0.5, "ok": True, "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a\"b"}]},
    {"text": "", "label": -2, "score": None, "ok": False, "messages": []},
    {"text": None, "label": 3, "score": 1e-30, "ok": None, "messages": None},
]


def write(path, rows, **options):
    parquet.write_table(pyarrow.Table.from_pylist(rows, **options), path, row_group_size=2)
    return path


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_become_lines_with_their_values(tmp_path):
    write(tmp_path / "a.parquet", ROWS)
    write(tmp_path / "b.parquet", ROWS[:1])
    assert data.to_jsonl([tmp_path], tmp_path / "out.jsonl") == 4
    assert read(tmp_path / "out.jsonl") == ROWS + ROWS[:1]


def test_columns_names_and_limits(tmp_path, capsys):
    path = write(tmp_path / "a.parquet", ROWS * 900)
    out = tmp_path / "out.jsonl"
    assert data.main(["to-jsonl", str(path), str(out), "--columns", "label,text", "--rename", "label=class", "--limit", "2500"]) == 0
    lines = read(out)
    assert len(lines) == 2500 and list(lines[0]) == ["class", "text"]
    assert lines[4] == {"class": -2, "text": ""}
    assert capsys.readouterr().out == f"{out}: 2500 rows\n"


def test_times_and_decimals_are_text(tmp_path):
    path = write(tmp_path / "a.parquet", [{"day": datetime.date(2026, 1, 2), "at": datetime.datetime(2026, 1, 2, 3, 4, 5), "price": decimal.Decimal("1.50")}])
    data.to_jsonl([path], tmp_path / "out.jsonl")
    assert read(tmp_path / "out.jsonl") == [{"day": "2026-01-02", "at": "2026-01-02T03:04:05", "price": "1.50"}]


@pytest.mark.parametrize(("rows", "flags", "error"), [
    ([{"x": b"abc", "y": 1}], [], "row 0, column 'x': bytes has no JSON"),
    ([{"x": 1.0}, {"x": float("nan")}], [], "row 1, column 'x': a number that is not finite has no JSON"),
    ([{"x": 1}], ["--columns", "z"], "expected a column 'z', got x"),
    ([{"x": 1}], ["--rename", "x=y", "--rename", "x=z"], "--rename: expected each column once, got 'x' again"),
    ([{"x": 1, "y": 2}], ["--rename", "x=y"], "expected a name for each column, got one twice: y, y"),
    ([{"x": 1}], ["--columns", "x,x"], "expected a name for each column, got one twice: x, x"),
    ([{"x": 1, "y": 2}], ["--columns", "x", "--rename", "y=z"], "expected a column 'y', got x"),
    ([{"x": 1}], ["--limit", "-1"], "expected a limit of 0 or more, got -1"),
    ([], [], "expected columns, got none"),
])
def test_what_has_no_json_is_one_line_and_no_file(tmp_path, capsys, rows, flags, error):
    path = write(tmp_path / "a.parquet", rows)
    assert data.main(["to-jsonl", str(path), str(tmp_path / "out.jsonl"), *flags]) == 2
    said = capsys.readouterr().err
    assert error in said and said.count("\n") == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.parquet"]


def test_files_that_are_none_or_there_already(tmp_path, capsys):
    (tmp_path / "a.parquet").write_text("no")
    (tmp_path / "out.jsonl").write_text("")
    assert data.main(["to-jsonl", str(tmp_path / "a.parquet"), str(tmp_path / "new.jsonl")]) == 2
    assert "expected a Parquet file" in capsys.readouterr().err
    path = write(tmp_path / "b.parquet", [{"x": 1}])
    assert data.main(["to-jsonl", str(path), str(tmp_path / "out.jsonl")]) == 2
    assert "expected a name that is free" in capsys.readouterr().err
    other = write(tmp_path / "c.parquet", [{"y": 1}])
    assert data.main(["to-jsonl", str(path), str(other), str(tmp_path / "new.jsonl")]) == 2
    assert "expected the columns x, got y" in capsys.readouterr().err


def test_a_column_of_the_same_name_is_not_left_out(tmp_path):
    parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["x", "x"]), tmp_path / "a.parquet")
    with pytest.raises(data.BadData, match="got one twice: x, x"):
        data.to_jsonl([tmp_path], tmp_path / "out.jsonl")


NS = pyarrow.time64("ns")


@pytest.mark.parametrize("type, value, expected", [
    (NS, 1_500_000_001_000, "00:25:00.000001"),
    (pyarrow.duration("ns"), 90_061_000_001_000, 90061.000001),
    (pyarrow.list_(NS), [1000, None], ["00:00:00.000001", None]),
    (pyarrow.large_list(pyarrow.list_(NS, 1)), [[1000]], [["00:00:00.000001"]]),
    (pyarrow.struct([("a", NS), ("b", pyarrow.int8())]), {"a": 1000, "b": 1}, {"a": "00:00:00.000001", "b": 1}),
    (pyarrow.map_(pyarrow.string(), NS), [("a", 1000)], [["a", "00:00:00.000001"]]),
    (pyarrow.large_string(), "\u00e9", "\u00e9"),
    (pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), "a", "a"),
    (pyarrow.list_(pyarrow.struct([("x", pyarrow.list_(pyarrow.list_(pyarrow.int8())))])), [{"x": [[1], None, []]}, None], [{"x": [[1], None, []]}, None]),
    (pyarrow.uint64(), 2**64 - 1, 2**64 - 1),
])
def test_values_of_nested_types_are_kept(tmp_path, type, value, expected):
    parquet.write_table(pyarrow.table({"c": pyarrow.array([value, None], type)}), tmp_path / "a.parquet")
    assert data.to_jsonl(tmp_path, tmp_path / "out.jsonl") == 2
    assert read(tmp_path / "out.jsonl") == [{"c": expected}, {"c": None}]


@pytest.mark.parametrize("type, value, words", [
    (NS, 1, "would lose data: 1"),
    (pyarrow.duration("ns"), 1, "would lose data: 1"),
    (pyarrow.struct([("a", pyarrow.list_(NS))]), {"a": [1]}, "would lose data: 1"),
    (pyarrow.date32(), 10**8, "out of range"),
    (pyarrow.timestamp("s"), 10**14, "must have magnitude"),
])
def test_what_python_would_round_or_has_not_is_one_line(tmp_path, capsys, type, value, words):
    parquet.write_table(pyarrow.table({"c": pyarrow.array([value], type)}), tmp_path / "a.parquet")
    assert data.main(["to-jsonl", str(tmp_path), str(tmp_path / "out.jsonl")]) == 2
    said = capsys.readouterr().err
    assert "a.parquet: expected values that Python has, got" in said and words in said and said.count("\n") == 1


@pytest.mark.parametrize("second, words", [
    (pyarrow.array(["x"]), "column 'c': expected int64, as the first file has it, got string"),
    (pyarrow.array([{"x": 1}]), "column 'c': expected int64, as the first file has it, got struct<x: int64>"),
    (pyarrow.array([True]), "got bool"),
    (pyarrow.array([1.5]), ""),
    (pyarrow.array([None]), ""),
])
def test_files_have_columns_of_one_kind(tmp_path, second, words):
    for name, column in (("a", pyarrow.array([1])), ("b", second)):
        parquet.write_table(pyarrow.table({"c": column}), tmp_path / f"{name}.parquet")
    if words:
        with pytest.raises(data.BadData, match=words):
            data.to_jsonl([tmp_path], tmp_path / "out.jsonl")
    else:
        assert read_all(tmp_path) == [{"c": 1}, {"c": second[0].as_py()}]


def read_all(folder):
    data.to_jsonl([folder], folder / "out.jsonl")
    return read(folder / "out.jsonl")


def test_errors_name_the_file_and_its_own_row(tmp_path, capsys):
    write(tmp_path / "a.parquet", [{"x": 1.0}] * 3)
    write(tmp_path / "b.parquet", [{"x": 1.0}, {"x": float("inf")}])
    assert data.main(["to-jsonl", str(tmp_path), str(tmp_path / "out.jsonl")]) == 2
    assert "b.parquet: row 1, column 'x'" in capsys.readouterr().err
    torn = bytearray((tmp_path / "a.parquet").read_bytes())
    torn[10:30] = b"\xff" * 20
    (tmp_path / "torn.parquet").write_bytes(torn)
    assert data.main(["to-jsonl", str(tmp_path / "torn.parquet"), str(tmp_path / "out.jsonl")]) == 2
    said = capsys.readouterr().err
    assert "torn.parquet: expected a whole Parquet file" in said and said.count("\n") == 1


@pytest.mark.parametrize("given, words", [
    ({"paths": 3}, "paths: expected a list of paths, got 3"),
    ({"paths": [3]}, "paths: expected a path, got 3"),
    ({"out": ""}, "out: expected a path, got ''"),
    ({"columns": "x"}, "columns: expected a list of one name or more, got 'x'"),
    ({"columns": []}, "columns: expected a list of one name or more, got "),
    ({"rename": {"x": 3}}, "rename: expected a dict of names, got {'x': 3}"),
    ({"limit": 1.5}, "expected a limit of 0 or more, got 1.5"),
])
def test_arguments_are_named(tmp_path, given, words):
    path = write(tmp_path / "a.parquet", [{"x": 1}])
    with pytest.raises(data.BadData) as caught:
        data.to_jsonl(**{"paths": path, "out": tmp_path / "out.jsonl", **given})
    assert words in str(caught.value)


@pytest.mark.parametrize("flags", [["--column", "x"], ["--lim", "1"], ["--rename", "x=y,y=z"]])
def test_flags_are_whole_words(tmp_path, flags):
    path = write(tmp_path / "a.parquet", [{"x": 1}])
    with pytest.raises(SystemExit) as ended:
        data.main(["to-jsonl", str(path), str(tmp_path / "out.jsonl"), *flags])
    assert ended.value.code == 2


def test_a_write_that_fails_leaves_no_file(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet", [{"x": 1}])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(data, "_line", full)
    with pytest.raises(data.BadData, match="No space left on device"):
        data.to_jsonl([path], tmp_path / "out.jsonl")
    assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.skipif(importlib.util.find_spec("pandas") is not None, reason="pandas has nanoseconds")
def test_a_time_that_python_has_not_is_one_line(tmp_path, capsys):
    parquet.write_table(pyarrow.table({"at": pyarrow.array([1], pyarrow.timestamp("ns"))}), tmp_path / "a.parquet")
    assert data.main(["to-jsonl", str(tmp_path), str(tmp_path / "out.jsonl")]) == 2
    said = capsys.readouterr().err
    assert "expected values that Python has" in said and said.count("\n") == 1
