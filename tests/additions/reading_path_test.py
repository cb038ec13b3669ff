#!/usr/bin/env python3
"""What a reader of an op opens between its definition and its GPU kernel: files, with their lines.

    tests/additions/reading_path_test.py [--source DIR] [--list] [OP...]

Starts from the op and its quantized form as src/ir/ops/ops.def names them. Floors:

definition  src/ir/ops: the files that define them or list them, with the slots and attributes that they include
passes      src/passes and src/plan: the files that name one of them
row         src/backends/cuda/target/bind: the files that name one of them, or that bind ops by the fact that they are a layer's,
            and what they include of the back end, with what target/choose says is launched
kernel      src/backends/cuda/kernels: the file that lists the KernelId of theirs, what it includes of the kernels, the
            arithmetic of layers included (math/row_layers.h), and the same of each file that defines a function that is called
            there, by the words of the op

Prints a line each and exits 1 where files or lines are more than its limit. Files alone would prove nothing: they can be
merged. Only the standard library.
"""

import argparse
import re
import sys
from pathlib import Path

# op: words that its kernels' functions have, files and lines at most. The goal of a norm is 20 files of 2,800 lines.
OPS = {
    "rms_norm": ("norm", 30, 4209),
    "gelu": ("gelu|gated|activation", 28, 3815),
    "rope": ("rope", 27, 3606),
}

# Functions by which a file of bind lists the ops that have a quantized form (ir/ops/quantize_layers.h).
LISTS_LAYERS = r"\b(is_norm_or_activation|quantized_layer)\("


class Tree:
    def __init__(self, source):
        self.root = source / "src"
        self.texts = {}
        for path in sorted(self.root.rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu", ".cuh", ".def"):
                self.texts[str(path.relative_to(self.root))] = path.read_text()

    def under(self, *folders):
        return [path for path in self.texts if path.startswith(folders)]

    def naming(self, pattern, *folders):
        return {path for path in self.under(*folders) if re.search(pattern, self.texts[path])}

    def closure(self, paths, *folders):
        """The files, and what of the folders they include, and so on."""
        seen, left = set(), list(paths)
        while left:
            path = left.pop()
            if path in seen:
                continue
            seen.add(path)
            included = re.findall(r'^#include "([^"]+)"', self.texts[path], re.MULTILINE)
            left += [name for name in included if name in self.texts and name.startswith(folders)]
        return seen


def functions_of(text):
    """Names of what begins in the first column and is called with brackets: functions, in definitions and declarations."""
    return set(re.findall(r"^[A-Za-z_][\w:<>,&* ]*?\b(\w+)\((?!\))", text, re.MULTILINE))


def kernel_files(tree, ids, words):
    folders = ("backends/cuda/kernels", "backends/cuda/params", "backends/cuda/rows", "backends/cuda/launch", "math/row_layers.h")
    defined = {}
    for path in tree.under("backends/cuda/kernels"):
        if path.endswith((".cu", ".cpp")):
            for name in functions_of(tree.texts[path]):
                defined.setdefault(name, set()).add(path)
    found, left = set(), tree.naming(rf"\bKernelId::({ids})\b", "backends/cuda/kernels")
    while left:
        files = tree.closure(left, *folders) - found
        found |= files
        called = {name for path in files for name in re.findall(r"\b(\w+)\(", tree.texts[path]) if re.search(words, name)}
        left = {path for name in called for path in defined.get(name, ())} - found
    return found


def row_files(tree, rows):
    found = tree.closure(rows, "backends/cuda/target", "backends/cuda/params", "backends/cuda/rows")
    return found | {path.removesuffix(".h") + ".cpp" for path in found if "/choose/" in path} & tree.texts.keys()


def reading_path(tree, op, words):
    form = re.search(rf"^OP\({op},(?:[^()]|\([^)]*\))*\.quantized = OpCode::(\w+)", tree.texts["ir/ops/ops.def"], re.MULTILINE)
    names = "|".join([op] + ([form[1]] if form else []))
    bind = "backends/cuda/target/bind"
    rows = tree.naming(rf"\b(OpCode::)?({names})\b", bind) or (tree.naming(LISTS_LAYERS, bind) if form else set())
    ids = {name for path in rows for name in re.findall(r"\bKernelId::(\w+)", tree.texts[path])}
    return {
        "definition": tree.closure(tree.naming(rf"\b(OpCode|defs)::({names})\b|^OP\(({names}),", "ir/ops"), "ir/ops", "ir/attr"),
        "passes": tree.naming(rf"\bOpCode::({names})\b", "passes", "plan"),
        "row": row_files(tree, rows),
        "kernel": kernel_files(tree, op if op in ids else "|".join(ids), words),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=Path(__file__).resolve().parent.parent.parent)
    parser.add_argument("--list", action="store_true", help="the files")
    parser.add_argument("ops", nargs="*", metavar="OP")
    arguments = parser.parse_args()
    tree = Tree(arguments.source)
    is_long = False
    for op in arguments.ops or OPS:
        words, most_files, most_lines = OPS[op]
        floors = reading_path(tree, op, words)
        files = set().union(*floors.values())
        lines = {path: tree.texts[path].count("\n") for path in files}
        counts = ", ".join(f"{name} {len(paths)}" for name, paths in floors.items())
        print(f"{op}: {len(files)} files of at most {most_files}, {sum(lines.values())} lines of at most {most_lines} ({counts})")
        if not all(floors[name] for name in ("definition", "row", "kernel")):
            print(f"{op}: a floor has no file; the script must follow the code")
            is_long = True
        if arguments.list:
            for name, paths in floors.items():
                for path in sorted(paths):
                    print(f"  {name:10} {lines[path]:5} {path}")
        is_long |= len(files) > most_files or sum(lines.values()) > most_lines
    return 1 if is_long else 0


if __name__ == "__main__":
    sys.exit(main())
