"""Runs that torchrun starts, and starts anew where a rank is lost. Needs PyTorch."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from test_library import config_in, metrics_of

pytest.importorskip("torch", reason="torchrun is PyTorch's")

STEPS = 2000


@pytest.fixture
def torchrun(tmp_path, program_path):
    """Starts launchers with these options, of ranks of a run in `tmp_path`."""
    config = tmp_path / "run.json"
    config.write_text(json.dumps(config_in(tmp_path, steps=STEPS, save_every=20, eval_every=0, keep=2)))
    launchers, words = [], [program_path, "train", str(config), "--resume", "--quiet", "--threads", "1"]

    def start(*options):
        log = open(tmp_path / f"launcher{len(launchers)}.txt", "w")
        command = [sys.executable, "-m", "torch.distributed.run", *options, "--no-python", *words]
        launchers.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, cwd=tmp_path))
        return launchers[-1]

    yield start
    for launcher in launchers:
        if launcher.poll() is None:
            for pid in [*ranks_of(launcher), launcher.pid]:
                os.kill(pid, signal.SIGKILL)
        launcher.wait()


def ranks_of(launcher):
    with open(f"/proc/{launcher.pid}/task/{launcher.pid}/children") as file:
        return [int(pid) for pid in file.read().split()]


def wait_for_steps(folder, count):
    for _ in range(4000):
        if (folder / "metrics.jsonl").exists() and len(metrics_of(folder)) >= count:
            return
        time.sleep(0.05)
    raise AssertionError("no steps")


def expect_whole(folder):
    """Every step once, each with as many tokens, up to the last."""
    lines = metrics_of(folder)
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert all(120 <= line["labels"] <= 128 for line in lines)  # 4 rows of 32, one of which may end the text


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_a_killed_rank_is_started_anew_and_the_run_goes_on(torchrun, tmp_path):
    launcher = torchrun("--standalone", "--nproc-per-node", "2", "--max-restarts", "2")
    wait_for_steps(tmp_path / "run", 50)
    os.kill(ranks_of(launcher)[-1], signal.SIGKILL)
    assert launcher.wait(300) == 0, (tmp_path / "launcher0.txt").read_text()
    assert "[ranks] rank 1 ended" in (tmp_path / "launcher0.txt").read_text()
    expect_whole(tmp_path / "run")


def test_a_lost_host_leaves_a_run_that_the_other_one_ends(torchrun, tmp_path):
    # The one that holds the meeting point is not the one to go. Both are there before the last call ends.
    options = ["--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint",
               f"127.0.0.1:{free_port()}", "--rdzv-id", "octet", "--local-addr", "127.0.0.1", "--rdzv-conf"]
    times = "last_call_timeout=15,keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=120"
    stays, goes = torchrun(*options, times + ",is_host=1"), torchrun(*options, times + ",is_host=0")
    wait_for_steps(tmp_path / "run", 50)
    for pid in [*ranks_of(goes), goes.pid]:
        os.kill(pid, signal.SIGKILL)
    assert stays.wait(300) == 0, (tmp_path / "launcher0.txt").read_text()
    expect_whole(tmp_path / "run")
