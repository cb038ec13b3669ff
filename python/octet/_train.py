"""octet.train: a run of the program as an iterator of its steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from . import _checks, _program
from ._config import call_of, text_of
from ._error import Error


def train(config, *, on_step=None, resume: bool = False, overwrite: bool = False, set=None, device: str = "cpu",
          threads: int = 0, isa: str = "auto", seed: int | None = None) -> Run:
    """Trains as `octet train CONFIG` does. Returns a Run: an iterator of its steps' metrics, dicts as in metrics.jsonl.

        for step in octet.train("recipes/llama-3m.yaml", set={"data.train": ["my/texts"], "out": "runs/first"}):
            print(step["step"], step["loss"])

    config: a YAML file's path, or a dict of its keys (docs/configuration.md).  set: overrides, {"train.steps": 10}.
    on_step: called with each step's metrics; the run then goes to its end before train() returns, and iterating over the
        Run gives the steps again.
    resume: goes on from the newest whole checkpoint in `out`, or starts where there is none.
    overwrite: begins anew in the place of the run in `out`.
    Leaving the loop over octet.train(...), closing the Run and Ctrl-C end the run as SIGINT does: the step is finished and
    the state saved; Ctrl-C then raises KeyboardInterrupt. Raises octet.Error with the program's line.
    """
    _checks.flag("train", resume=resume, overwrite=overwrite)
    if seed is not None:
        _checks.integer("train", "seed", seed, 0)
    if on_step is not None:
        _checks.function("train", on_step=on_step)
    run = Run(config, resume=resume, overwrite=overwrite, set=set, device=device, threads=threads, isa=isa, seed=seed)
    if on_step is not None:
        with run:
            steps = []
            for step in run:
                on_step(step)
                steps.append(step)
        run._steps = steps
    return run


class Run:
    """A run in progress, a process of its own, and the iterator of its steps. A context manager that ends it; it ends, too,
    where nothing refers to it any more.

    out: its folder.  result: once it is done, the row that `octet train --json` prints.
    """

    def __init__(self, config, *, set, seed, **flags):
        sets = [*_program.sets_of(set), *([f"train.seed={seed}"] if seed is not None else [])]
        from . import _native
        self.out = Path(_native.output_folder(call_of(config, sets)))
        self.result: dict | None = None
        self._steps: list[dict] | None = None
        self._file = None
        if isinstance(config, dict):
            self._file = tempfile.NamedTemporaryFile("w", suffix=".yaml")
            self._file.write(text_of(config))
            self._file.flush()
            config = self._file.name
        self._err = tempfile.TemporaryFile()
        words = _program.words_of({"set": sets, **flags})
        # A session of its own: Ctrl-C reaches it through us, once.
        self._child = subprocess.Popen([str(_program.path()), "train", os.fspath(config), *words, "--json", "--stream"],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._err,
                                       start_new_session=True)
        self._rest: list[bytes] = []

    def __iter__(self):
        return iter(self._steps) if self._steps is not None else self

    def __next__(self) -> dict:
        try:
            while not self._child.stdout.closed:
                line = self._child.stdout.readline()
                if line.startswith(b'{"step":'):
                    return json.loads(line)
                if not line:
                    self._finish(b"".join(self._rest))
                    break
                self._rest.append(line)
        except BaseException:  # KeyboardInterrupt among them
            self.close()
            raise
        self.close()
        raise StopIteration

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __del__(self):
        if getattr(self, "_child", None) is not None:
            self.close()

    def close(self) -> None:
        """Ends the run where it still goes on, its state saved."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGINT)
            self._child.stdout.read()  # what it still says, or it would wait for a reader
            self._child.wait()
        self._child.stdout.close()

    def wait(self) -> dict:
        """Runs to the end; the result."""
        for _ in self:
            pass
        if self.result is None:
            raise Error("[train] expected a run that went to its end, got one that was closed")
        return self.result

    def _finish(self, rest: bytes) -> None:
        status = self._child.wait()
        self._err.seek(0)
        text = self._err.read().decode(errors="replace")
        if status == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        if status != 0:
            raise _program.error_of(status, text)
        self.result = (json.loads(rest or b"[]") or [{}])[0]
