"""The package itself: what it offers, and what importing it costs."""

import os
import pickle
import subprocess
import sys

import octet
import pytest


def run_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_is_quick_and_brings_no_other_package():
    # The best of five: what else runs on the machine is not its fault.
    code = ("import time, sys; a = time.perf_counter(); import octet; b = time.perf_counter();"
            "print(b - a, any(name in sys.modules for name in ('numpy', 'torch', 'octet._native')))")
    runs = [run_python(code).split() for _ in range(5)]
    assert {brought for _, brought in runs} == {"False"}
    assert min(float(seconds) for seconds, _ in runs) < 0.1


def test_every_name_that_is_announced_is_there():
    for name in octet.__all__:
        if name == "optim":
            pytest.importorskip("torch", reason="octet.optim needs PyTorch")
        assert getattr(octet, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        octet.nothing


def test_the_version_is_the_programs(program):
    assert program("--version").decode().split()[1] == octet.__version__


def test_errors_can_be_sent_to_another_process():
    error = pickle.loads(pickle.dumps(octet.Error("one line", "numerics")))
    assert (str(error), error.code, error.exit_code) == ("one line", "numerics", 4)
    assert isinstance(error, RuntimeError)
