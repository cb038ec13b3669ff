#!/usr/bin/env python3
"""Counts of the structure that nobody may let grow: prints each with its limit, and exits 1 where one is above it.

    tools/count_structure.py [--list NAME] [ROOT]     --list: the places of one count

op lists        arrays, sets and loops over three ops or more, but ops.def, the tables of rows (bind/) and the reference
op cases        `case OpCode::`
op chains       an expression that compares with three ops or more
op masks        places of operands or results as binary numbers in ops.def
slot strings    slots of an op that are found by a name as text, or by asking whether the name compiles, but by the parser
twin ops        ops that are another with a quantizer in it, or one with two results
stores          ways in which a node stores, quantizes or measures its own results: the first place of each in ops.def
lonely facts    facts of OpRow that one file reads at most, and no test of OpFacts or OpList, which fails where one is taken away
duplicates      in src, and in tests: pairs of places of two files, or of one, that have 6 lines of code or more in common
includes        files of src that train/trainer.cpp includes, directly or not
Only the standard library.
"""

import re
import sys
from itertools import combinations
from pathlib import Path

from check_layers import INCLUDE, project_files, without_comments

# The limits are what is there: lower them with the counts.
LIMITS = {"op lists": 0, "op cases": 9, "op chains": 3, "op masks": 0, "slot strings": 0, "twin ops": 8, "stores": 6,
          "lonely facts": 0, "duplicates in src": 2, "duplicates in tests": 1, "includes": 155}

LEAST_LINES, LEAST_CHARACTERS = 6, 160
NO_CODE = re.compile(r"^(?:[{}()\[\];,]*|#.*|using .*|namespace .*|//.*|\}  // namespace.*|(?:public|private|protected|default):|else|break;|return;)$")
OP_LISTS = [re.compile(r"\bOpCode\s+\w+\[\d*\]\s*=?\s*\{"), re.compile(r"(?:set|vector|array|map)<OpCode(?:, \w+)*>\s+\w+\s*=?\s*\{"),
            re.compile(r"\{\s*OpCode::\w+\s*,\s*OpCode::\w+\s*,\s*OpCode::\w+"), re.compile(r"\busing enum OpCode\b")]
OP_CHAIN = re.compile(r"[=!]= OpCode::\w+\b(?:[^;{}]*?[=!]= OpCode::\w+\b){2,}")
SLOT_STRINGS = [re.compile(r'(?:operands|results)\.find\(\s*(?:"|fmt::|\w+\))'), re.compile(r'\b(?:operand|result)_slot\([^;{}"]*"'),
                re.compile(r"\brequires\s*\{\s*[A-Z]\w*::\w+;\s*\}")]
TWIN_OP = re.compile(r"^OP\((?!fake_)(\w+_quantize|quantize_both),", re.MULTILINE)
STORES = {  # of a line of ops.def
    "an attribute: the maximum of its results": r"\.amax_results = ",
    "an op of its own: a layer or a gradient with a quantizer": r"^OP\((\w+),(?:[^()]|\([^()]*\))*\.quantized = OpCode::(?!\1\b)",
    "an operand: the scale of its codes": r"^OP\((\w+),(?:[^()]|\([^()]*\))*\.quantized = OpCode::\1\b",
    "more results: its operands in groups": r"\bkept_\w+",
    "an op of its own: a sum, a scale or two layouts": r"^OP\((?:add_quantize|amax_quantize|quantize_both),",
    "a result of a collective: squares": r"\bsquares\)"}
OWN_TABLES = ("src/ir/ops/", "src/backends/cpu/reference/", "src/backends/cpu/bind/", "src/backends/cuda/target/bind/")


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def places(code, patterns):
    return [f"{path}:{line_of(text, match.start())}" for path, text in code.items() for pattern in patterns
            for match in pattern.finditer(text)]


def op_counts(files):
    code = {path: without_comments(text) for path, text in files.items() if path.startswith(("src/", "cli/")) and "OpCode" in text}
    outside = {path: text for path, text in code.items() if not path.startswith(OWN_TABLES)}
    ops = files["src/ir/ops/ops.def"]
    yield "op lists", places(outside, OP_LISTS)
    yield "op cases", places(code, [re.compile(r"\bcase OpCode::")])
    yield "op chains", places(outside, [OP_CHAIN])
    yield "op masks", places({"src/ir/ops/ops.def": ops}, [re.compile(r"= 0[bx]\w+")])
    yield "slot strings", places({path: without_comments(text) for path, text in files.items() if path.startswith("src/")}, SLOT_STRINGS)
    yield "twin ops", places({"src/ir/ops/ops.def": ops}, [TWIN_OP])
    firsts = {how: places({"src/ir/ops/ops.def": ops}, [re.compile(pattern, re.MULTILINE)])[:1] for how, pattern in STORES.items()}
    yield "stores", [f"{place[0]}: {how}" for how, place in firsts.items() if place]


def facts(op_def):
    """The members of OpRow that have a default: what a line of ops.def may say."""
    row = re.search(r"struct OpRow \{(.*?)\n\};", without_comments(op_def), re.DOTALL).group(1)
    for line in re.findall(r"(?m)^  (?!constexpr)[\w:<>]+ (\w+ = [^;]*);", row):
        for name in re.findall(r"(\w+) = ", line):
            yield name


def lonely_facts(files):
    of_facts = ("ops_list_test.cpp", "op_facts_test.cpp")
    tests = "".join(text for path, text in files.items() if path.endswith(of_facts))
    looking = {path: without_comments(text) for path, text in files.items()
               if re.search(r"op_def|OpDef|OpRow|kRows", text) and not path.endswith(of_facts)}
    for name in facts(files["src/ir/op_def.h"]):
        read = re.compile(rf"(?:\.|->|OpRow::|OpDef::){name}\b(?!\s*=[^=])")
        readers = [path for path, text in looking.items() if read.search(text)]
        if len(readers) < 2 and not re.search(rf"def\.{name}\b", tests):
            yield f"{name}: {', '.join(readers) or 'no reader'}"


def code_lines(text):
    """(line number, text) of what computes or declares."""
    return [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if not NO_CODE.match(line.strip())]


def duplicates(files, folders):
    """Maximal equal runs, as `path:line path:line lines`."""
    lines = {path: code_lines(text) for path, text in files.items()
             if path.startswith(folders) and not path.startswith("tests/fixtures/")}
    windows = {}
    for path, found in lines.items():
        for at in range(len(found) - LEAST_LINES + 1):
            key = tuple(line for _, line in found[at:at + LEAST_LINES])
            if sum(map(len, key)) >= LEAST_CHARACTERS:
                windows.setdefault(key, []).append((path, at))
    pairs = {pair for where in windows.values() if 1 < len(where) <= 8 for pair in combinations(where, 2)}
    for (one, i), (other, j) in sorted(pairs):
        if ((one, i - 1), (other, j - 1)) in pairs or (one == other and j - i < LEAST_LINES):
            continue
        n = LEAST_LINES
        while ((one, i + n - LEAST_LINES + 1), (other, j + n - LEAST_LINES + 1)) in pairs:
            n += 1
        yield f"{one}:{lines[one][i][0]} {other}:{lines[other][j][0]} {n} lines"


def includes(files, path):
    seen, left = set(), [path]
    while left:
        at = left.pop()
        if at in seen:
            continue
        seen.add(at)
        for line in files[at].split("\n"):
            match = INCLUDE.match(line)
            if match and match.group(1) == '"' and "src/" + match.group(2) in files:
                left.append("src/" + match.group(2))
    return sorted(seen - {path})


def main(arguments):
    wanted = arguments[arguments.index("--list") + 1] if "--list" in arguments else None
    rest = [a for a in arguments[1:] if a not in ("--list", wanted)]
    root = Path(rest[0] if rest else Path(__file__).resolve().parent.parent)
    files = {name: path.read_text(encoding="utf-8") for name, path in project_files(root)
             if name.startswith(("src/", "cli/", "tests/")) and path.suffix in (".h", ".cpp", ".cu", ".cuh")}
    files["src/ir/ops/ops.def"] = (root / "src/ir/ops/ops.def").read_text(encoding="utf-8")
    counts = dict(op_counts(files))
    counts["lonely facts"] = list(lonely_facts(files))
    counts["duplicates in src"] = list(duplicates(files, ("src/", "cli/")))
    counts["duplicates in tests"] = list(duplicates(files, ("tests/",)))
    counts["includes"] = includes(files, "src/train/trainer.cpp")
    failed = False
    for name, found in counts.items():
        limit = LIMITS[name]
        print(f"{name:20} {len(found):4}, at most {limit}" + (": too many" if len(found) > limit else ""))
        failed = failed or len(found) > limit
        if name == wanted:
            print("\n".join("  " + place for place in found))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
