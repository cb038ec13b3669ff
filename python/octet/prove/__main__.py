"""Proves stacks that are installed:

    python -m octet.prove [NAME...] [--device cpu|cuda] [--seconds 60] [--list]

A table of what was held, cases, how many are equal and the first difference, the documented choices that were seen, and a block to
paste into an issue. Exit status: 0; 1 where a difference is no documented choice, or a stack that was named is not installed; 2 for a
name that is none, for one that does not run on the device, and for cuda without a CUDA device."""

from __future__ import annotations

import argparse
import math
import os
import platform
import subprocess
import sys
import time
import warnings

from .._error import Error
from .._version import __version__
from . import stacks
from ._result import Result, table


def main(arguments=None) -> int:
    given = _arguments(arguments)
    try:
        chosen = stacks.find(given.names)
    except Error as error:
        print(error, file=sys.stderr)
        return 2
    if given.list:
        for stack in chosen:
            print(f"{stack.name:20} {stack.versions or 'not installed':30} {', '.join(stack.devices):10} {stack.covers}")
        return 0
    absent = [stack for stack in chosen if stack.missing] if given.names else []
    if absent:
        print(f"[prove] not installed: {', '.join(f'{package} of {stack.name}' for stack in absent for package in stack.missing)}",
              file=sys.stderr)
        return 1
    elsewhere = [stack.name for stack in chosen if given.device not in stack.devices] if given.names else []
    if elsewhere:
        print(f"[prove] --device {given.device}: expected stacks that run there, got {', '.join(elsewhere)}", file=sys.stderr)
        return 2
    if given.device == "cuda" and not _has_cuda(chosen):
        print("[prove] --device cuda: expected a CUDA device that PyTorch has, got none", file=sys.stderr)
        return 2
    results, left_out = _prove(chosen, given)
    print(table(results))
    _print_choices(results)
    for line in left_out:
        print(line)
    differences = [result for result in results if not result and not result.skipped]
    print(f"\n{len(results)} proofs, {len(differences)} with a difference that no documented choice explains")
    if differences:
        print(_block(chosen, given.device, differences))
    return 1 if differences else 0


def _arguments(arguments):
    parser = argparse.ArgumentParser(prog="python -m octet.prove", allow_abbrev=False, description="Holds other stacks' casts, quantizers, products and "
                                     "optimizers to exact definitions.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"stacks, all that are installed by default: {' '.join(stacks.NAMES)}")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=_seconds, default=60, help="no new proof after them (60)")
    parser.add_argument("--list", action="store_true", help="the stacks, their versions and what is covered")
    return parser.parse_args(arguments)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number, 0 or more, got '{text}'")
    return seconds


def _has_cuda(chosen) -> bool:
    """Whether there is a device for the stacks that run on one."""
    if not any("cuda" in stack.devices and not stack.missing for stack in chosen):
        return True
    import torch
    return torch.cuda.is_available()


def _prove(chosen, given) -> tuple[list[Result], list[str]]:
    end, results, left_out = time.perf_counter() + given.seconds, [], []
    for stack in chosen:
        if stack.missing:
            left_out.append(f"{stack.name}: not installed: {', '.join(stack.missing)}")
        elif given.device not in stack.devices:
            left_out.append(f"{stack.name}: runs on {', '.join(stack.devices)} alone")
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                n_left = _run(stack, given.device, end, results)
            if n_left > 0:
                left_out.append(f"{stack.name}: {n_left} proofs not begun within {given.seconds:g} seconds")
    return results, left_out


def _run(stack, device, end, results) -> int:
    """Appends the stack's results; how many proofs were not begun."""
    n_left = 0
    try:
        for what, proof in stack.proofs(device):
            if time.perf_counter() > end:
                n_left += 1
            else:
                results.append(_result(what, proof))
    except Exception as error:  # noqa: BLE001: an adapter that does not fit the installed version
        results.append(_unfit(stack.name, error))
    return n_left


def _result(what, proof) -> Result:
    try:
        return proof()
    except Exception as error:  # noqa: BLE001: the other proofs of the stack go on
        return _unfit(what, error)


def _unfit(what, error) -> Result:
    text = " ".join(f"{type(error).__name__}: {error}".split())[:160]
    return Result(what, skipped=f"the adapter does not fit this version: {text}")


def _print_choices(results) -> None:
    """Each choice once, with those that made it."""
    by_choice: dict[str, list[str]] = {}
    for result in results:
        for choice in result.choices:
            by_choice.setdefault(choice, []).append(result.what)
    if by_choice:
        print("\ndocumented choices and what was found:")
    for choice, whats in by_choice.items():
        more = f" and {len(whats) - 3} more" if len(whats) > 3 else ""
        print(f"  {choice}: {', '.join(whats[:3])}{more}")


def _block(chosen, device, differences) -> str:
    versions = sorted({part for stack in chosen for part in stack.versions.split(", ") if part})
    lines = ["", "```", f"octet {__version__}, Python {platform.python_version()}, {platform.machine()}", f"{', '.join(versions)}",
             f"device: {_device(device)}", ""]
    lines += [f"{result.what}: {result.first.line() if result.first else 'nothing was compared'} "
              f"({result.cases - result.equal} of {result.cases} differ)" for result in differences]
    return "\n".join([*lines, "```"])


def _device(device: str) -> str:
    if device == "cpu":
        return f"cpu, {_cpu_name()}, {os.cpu_count()} processors"
    import torch
    try:
        driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True,
                                timeout=20, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError):
        driver = "not known"
    return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, driver {driver}"


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "not known"


if __name__ == "__main__":
    sys.exit(main())
