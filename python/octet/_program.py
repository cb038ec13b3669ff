"""The program `octet` that the package brings, run as a process of its own; what it says becomes objects and errors."""

from __future__ import annotations

import json
import numbers
import os
import signal
import subprocess
from pathlib import Path

from . import _checks
from ._error import Error

_CODES = {2: "invalid_argument", 3: "bad_data", 4: "numerics", 5: "device", 75: "rank_lost"}


def path() -> Path:
    """Where the program lies."""
    program = Path(__file__).parent / "bin" / "octet"
    if not program.exists():
        raise Error(f"[octet] expected the program {program}, it is not there", "device")
    return program


def cuda_module() -> str:
    """Where the CUDA module is looked for, as the program does."""
    folder = path().resolve().parent
    beside = folder / "liboctet_cuda.so"
    return str(beside if beside.exists() else folder / "cuda" / "liboctet_cuda.so")


def main() -> None:
    """The command `octet`: this process becomes the program."""
    import sys
    program = str(path())
    os.execv(program, [program, *sys.argv[1:]])


def error_of(status: int, text: str) -> Error:
    """What the program's last line and exit status say."""
    lines = [line for line in text.splitlines() if line.strip()]
    message = lines[-1] if lines else f"the program ended with status {status}"
    return Error(message.removeprefix("octet: "), _CODES.get(status, "internal"))


def run(*arguments, input: bytes | str | None = None, **flags):
    """Any command of the program: run("inspect", "runs/first") or run("eval", model="runs/first", tasks="nll").

    arguments: words of the command line.  flags: underscores stand for dashes; True is a flag alone, None and False are left
    out, a list joins with commas or, for `set`, repeats.  input: its standard input.
    Returns what it prints: the value of its JSON where the command has --json, else its text. Raises octet.Error with the
    program's line, and KeyboardInterrupt where it was interrupted. `octet COMMAND --help` explains each.
    """
    line = [str(path()), *map(_word, arguments), *words_of(flags), "--json"]
    data = input.encode() if isinstance(input, str) else input
    child = subprocess.Popen(line, stdin=subprocess.DEVNULL if data is None else subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
    try:
        out, err = child.communicate(data)
    except KeyboardInterrupt:
        interrupt(child)
        raise
    if child.returncode != 0:
        if child.returncode in (130, -signal.SIGINT):
            raise KeyboardInterrupt
        raise error_of(child.returncode, err.decode(errors="replace"))
    text = out.decode(errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def interrupt(child: subprocess.Popen) -> None:
    """Ends it as Ctrl-C does, and waits: a run saves its state first."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
    child.wait()


def words_of(flags: dict) -> list[str]:
    words = []
    for name, value in flags.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif name == "set":
            for one in sets_of(value):
                words += [flag, one]
        elif isinstance(value, (list, tuple)):
            words += [flag, ",".join(map(_word, value))]
        else:
            words += [flag, _word(value)]
    return words


def sets_of(value) -> list[str]:
    """{"train.steps": 10} or ["train.steps=10"] as the words behind --set."""
    if value is None:
        return []
    is_list = isinstance(value, (dict, list, tuple)) and all(isinstance(one, str) for one in value)
    if not isinstance(value, str) and not is_list:
        _checks.refuse("set", "overrides", "{'train.batch': 4} or ['train.batch=4']", value)
    if isinstance(value, dict):
        return [f"{key}={one if isinstance(one, str) else json.dumps(one)}" for key, one in value.items()]
    return [value] if isinstance(value, str) else [str(one) for one in value]


def _word(value) -> str:
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def check_machine(device, isa, threads) -> None:
    """What calls that open a machine later take now. Raises octet.Error."""
    for name, value, known in (("device", device, ("cpu", "cuda")), ("isa", isa, ("auto", "scalar", "avx2", "avx512", "amx"))):
        if value not in known:
            raise Error(f"[{name}] expected {', '.join(known[:-1])} or {known[-1]}, got {value}")
    if isinstance(threads, bool) or not isinstance(threads, numbers.Integral) or not 0 <= threads <= 4096:
        raise Error(f"[threads] expected an integer from 0 to 4096, got {threads!r}")
