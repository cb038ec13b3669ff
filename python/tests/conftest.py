"""What the tests share: the program, the folder of shared data, and random inputs."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def pytest_report_header(config):
    return f"program: {os.environ.get('OCTET_PROGRAM', ROOT / 'build' / 'octet')}"


@pytest.fixture(scope="session")
def program_path():
    path = os.environ.get("OCTET_PROGRAM", str(ROOT / "build" / "octet"))
    if not Path(path).exists():
        pytest.skip(f"the program is not built: {path}")
    return path


@pytest.fixture(scope="session")
def program(program_path):
    """Runs the program: program("formats", "list", input=b"...") -> its standard output."""

    def run(*arguments, input=b"", code=0):
        done = subprocess.run([program_path, *map(str, arguments)], input=input, capture_output=True, timeout=300)
        assert done.returncode == code, done.stderr.decode()
        return done.stdout if code == 0 else done.stderr.decode()

    return run


@pytest.fixture(scope="session")
def shared():
    """The folder of shared data."""
    folder = Path(os.environ.get("OCTET_TEST_DATA", ROOT.parent / "shared"))
    if not folder.exists():
        pytest.skip(f"the shared data is not there: {folder}")
    return folder


def hostile_floats(n, seed):
    """f32 of every kind: random bit patterns, NaN, Inf, zeros of both signs, subnormals, normal numbers."""
    rng = np.random.default_rng(seed)
    patterns = rng.integers(0, 2**32, n, dtype=np.uint32).view(np.float32)
    patterns[: n // 2] = rng.standard_normal(n // 2).astype(np.float32) * 10
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 448, 449, 464, 465, 57344, 65536, 3e38],
                       np.float32)
    patterns[: len(special)] = special
    return patterns


def same_bits(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
