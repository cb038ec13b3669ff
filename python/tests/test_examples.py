"""Each example runs; one whose packages are missing skips."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT


def run_example(name, *arguments, folder):
    done = subprocess.run([sys.executable, ROOT / "examples" / name, *arguments], capture_output=True, text=True,
                          cwd=folder, env=os.environ, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_format_study_finds_the_best_formats(tmp_path, program):
    out = run_example("format_study.py", "--samples", "512", folder=tmp_path)
    assert "sigma 2^ +0" in out and "e4m3: " in out


def test_the_one_line_change_learns_as_well(tmp_path):
    pytest.importorskip("torch", reason="needs PyTorch")
    lines = run_example("torch_optimizer.py", "--steps", "60", folder=tmp_path).splitlines()
    losses = [float(line.split("loss")[1].split()[0]) for line in lines]
    assert len(losses) == 3 and max(losses[1:]) < 1.05 * losses[0] + 0.01
    assert "4.0" in lines[1] and "2.0" in lines[2]


def test_the_trainer_takes_the_optimizer(tmp_path):
    for package in ("torch", "transformers", "accelerate"):
        pytest.importorskip(package, reason=f"needs {package}")
    losses = [float(run_example("transformers_trainer.py", "--steps", "6", *more, folder=tmp_path).split("mean loss ")[1].split()[0])
              for more in ((), ("--coat",))]
    assert abs(losses[0] - losses[1]) < 0.05
