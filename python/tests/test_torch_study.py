"""tools/torch_optimizer_study.py: its runs on a tiny model, and its table. The runs need PyTorch."""

import csv
import os
import subprocess
import sys

import pytest
from conftest import ROOT

TOOL = ROOT / "tools" / "torch_optimizer_study.py"


def run_tool(*arguments, code=0):
    done = subprocess.run([sys.executable, TOOL, *map(str, arguments)], capture_output=True, text=True, env=os.environ, timeout=300)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_every_optimizer_learns_and_its_states_are_counted(tmp_path):
    pytest.importorskip("torch", reason="needs PyTorch")
    text = tmp_path / "text"
    text.write_bytes(b"the quick brown fox jumps over the lazy dog. " * 200)
    out = run_tool("--config", "tiny", "--steps", 30, "--seeds", "3", "--text", text, "--out", tmp_path / "runs.csv", "--device", "cpu")
    with open(tmp_path / "runs.csv", newline="") as file:
        rows = {row["optimizer"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["base", "remainder", "sr"]
    for name, expected in (("base", 12), ("remainder", 4.0625), ("sr", 2.0625)):
        row = rows[name]
        assert abs(float(row["bytes_per_parameter"]) / expected - 1) < 0.01
        assert float(row["loss"]) < 5.0 and float(row["tokens_per_s"]) > 0  # ln 256: what no training has
        assert abs(float(row["loss"]) - float(rows["base"]["loss"])) < 0.1
        assert f"| {name} | 1 | {float(row['loss']):.4f} |" in out
    assert out.splitlines()[1].startswith("base,tiny,3,30,")
    assert run_tool("--table", tmp_path / "runs.csv").strip() in out
    short = tmp_path / "short"
    short.write_bytes(b"short")
    assert "expected a text of" in run_tool("--config", "tiny", "--text", short, code=1)


def test_the_table_pairs_runs_of_one_seed(tmp_path):
    lines = ["optimizer,config,seed,steps,loss,tokens_per_s,state_bytes,bytes_per_parameter,parameters",
             "base,tiny,1,30,1.0,100,12,12.0,1", "sr,tiny,2,30,2.006,300,2,2.06,1"]
    more = ["base,tiny,2,30,2.0,300,12,12.0,1", "sr,tiny,1,30,1.002,100,2,2.06,1"]
    for name, part in (("a.csv", lines), ("b.csv", more)):
        (tmp_path / name).write_text("\n".join(part) + "\n")
    table = run_tool("--table", tmp_path / "a.csv", tmp_path / "b.csv")
    assert "| base | 2 | 1.5000 |  |  |  | 12.000 | 200 |" in table
    assert "| sr | 2 | 1.5040 | +0.0020 +0.0060 | +0.0040 | 0.0028 | 2.060 | 200 |" in table
