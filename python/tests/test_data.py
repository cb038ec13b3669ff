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
