#!/usr/bin/env python3
"""Checks what nvcc makes of the kernels: a call that it dropped without a word, a kernel that it emptied. No GPU is needed.

    tools/check_kernels.py [FILE.cu...]     prints one line a fault, `path: rule: what`; exits 1 if there is one

  compile        the file does not compile as the module is built (src/backends/cuda/CMakeLists.txt). It is then looked at as if device
                 code might call host functions.
  host-call      unoptimized PTX holds .callprototype, a call by address. Kernels make none, so the address is that of a host function: 0.
  empty-kernel   a kernel in the optimized PTX stores nothing and calls nothing.

Without files: all of the module. A file found sound is not compiled again until it, a file that it includes, the flags, this tool or
nvcc changes (build/kernels). Where nvcc is missing it says so, and exits 0. Only the standard library.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE = ROOT / "src/backends/cuda"
ARCH = "90a"  # what continuous integration builds
RELAXED = "--expt-relaxed-constexpr"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# A kernel or a function begins at the beginning of a line; closing braces there may be inline assembly's.
BEGIN = re.compile(r"^(?:\.visible\s+|\.weak\s+)*\.(entry|func)\b", re.MULTILINE)
NAME = re.compile(r"[\w$]+(?=\s*\()")
EFFECT = re.compile(r"^[\s{]*(?:@!?%\w+\s+)?(?:st|red|atom|call)\b", re.MULTILINE)


def find_nvcc():
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def build_flags():
    """The module's own, as its CMakeLists.txt gives them to nvcc; -lineinfo does not go with -G."""
    text = (MODULE / "CMakeLists.txt").read_text(encoding="utf-8")
    flags = re.search(r"COMPILE_LANGUAGE:CUDA>:SHELL:(-std=[^>]*)>", text).group(1).split()
    return [flag for flag in flags if flag != "-lineinfo"]


def calls_of_host(ptx):
    n_calls = ptx.count(".callprototype")
    return [("host-call", f"{n_calls} calls of a host function in device code")] if n_calls else []


def empty_kernels(ptx):
    faults, begins = [], list(BEGIN.finditer(ptx))
    for begin, end in zip(begins, [one.start() for one in begins[1:]] + [len(ptx)]):
        body = ptx[begin.end():end]
        if begin.group(1) == "entry" and not EFFECT.search(body):
            faults.append(("empty-kernel", f"{NAME.search(body).group()} stores nothing"))
    return faults


def readable(text):
    """With the names of functions as they are written, where binutils can tell."""
    if shutil.which("c++filt") is None:
        return text
    return subprocess.run(["c++filt"], input=text, capture_output=True, text=True, check=True).stdout.strip()


def compile_ptx(source, flags):
    """PTX, or None, and what nvcc said."""
    with tempfile.TemporaryDirectory() as folder:
        ptx = Path(folder) / "kernels.ptx"
        command = [find_nvcc(), "-ptx", f"-arch=compute_{ARCH}", f"-I{ROOT / 'src'}", *flags, "-o", ptx, source]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return (ptx.read_text(encoding="utf-8") if done.returncode == 0 else None), done.stdout + done.stderr


def check_file(source, flags):
    """The faults of one file, as (rule, what)."""
    faults = []
    for rule, more in ((calls_of_host, ["-G"]), (empty_kernels, [])):
        ptx, said = compile_ptx(source, flags + more)
        if ptx is None:
            what = next((line for line in said.splitlines() if "error" in line), said.strip() or "nvcc failed")
            faults += [("compile", what)] if not faults else []
            ptx, _ = compile_ptx(source, [RELAXED, "-std=c++20"] + more)
        faults += rule(ptx) if ptx is not None else []
    return faults


def inputs(source, found=None):
    """The file and all of the project that it includes."""
    found = {} if found is None else found
    if source not in found:
        found[source] = source.read_bytes()
        for name in INCLUDE.findall(found[source].decode("utf-8")):
            if (ROOT / "src" / name).is_file():
                inputs(ROOT / "src" / name, found)
    return found


def stamp_of(source, flags):
    version = subprocess.run([find_nvcc(), "--version"], capture_output=True, check=True).stdout
    key = hashlib.sha256(repr((version, flags, ARCH, Path(__file__).read_bytes())).encode())
    for path, content in sorted(inputs(source).items()):
        key.update(repr((str(path), content)).encode())
    return ROOT / "build/kernels" / key.hexdigest()


def check_once(source, flags):
    stamp = stamp_of(source, flags)
    if stamp.exists():
        return []
    faults = check_file(source, flags)
    if not faults:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.touch()
    return faults


def main(arguments):
    if find_nvcc() is None:
        print("kernels: no nvcc, nothing checked")
        return 0
    sources = [Path(one).resolve() for one in arguments[1:]] or sorted(MODULE.glob("kernels/*/*.cu"))
    flags, n_faults = build_flags(), 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for source, faults in zip(sources, pool.map(lambda one: check_once(one, flags), sources)):
            for rule, what in faults:
                print(f"{os.path.relpath(source)}: {rule}: {readable(what)}")
            n_faults += len(faults)
    print(f"kernels: {n_faults} faults in {len(sources)} files")
    return 1 if n_faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
