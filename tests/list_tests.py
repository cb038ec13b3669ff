#!/usr/bin/env python3
"""list_tests.py PROGRAM LABEL FILE: writes FILE, a ctest script, with a test for each GoogleTest case of a program that holds the cases of
several folders: its name is LABEL.FOLDER.SUITE.CASE, where the source that has the case is tests/LABEL/FOLDER/... Each runs in a process of
its own.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def quoted(text):
    """A bracket argument of CMake's, whose end the text does not hold."""
    signs = "="
    while f"]{signs}]" in text:
        signs += "="
    return f"[{signs}[{text}]{signs}]"


def cases(program):
    """(suite, case) as the filter has them, the words of the name, and the source."""
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "tests.json"
        done = subprocess.run([program, "--gtest_list_tests", f"--gtest_output=json:{listed}"], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            sys.exit(f"{program}: ends with {done.returncode}\n{done.stdout}{done.stderr}")
        for suite in json.loads(listed.read_text())["testsuites"]:
            for case in suite["testsuite"]:
                yield suite["name"], case["name"], case.get("value_param"), case["file"]


def shown(case, value):
    """A case that is numbered is called by its value, unless that is printed as its bytes."""
    stem, _, number = case.rpartition("/")
    return f"{stem}/{value}" if value is not None and number.isdigit() and "-byte object <" not in value else case


def main():
    program, label, file = sys.argv[1:]
    lines = []
    for suite, case, value, source in cases(program):
        # Compilers' caches make paths relative to the build's folder.
        folders = re.findall(rf"(?:^|/)tests/{label}/(?=([^/]+)/)", source)
        if not folders:
            sys.exit(f"{program}: expected {suite}.{case} in tests/{label}, got {source}")
        folder = folders[-1]
        name = quoted(f"{label}.{folder}.{suite}.{shown(case, value)}")
        lines.append(f"add_test({name} {quoted(program)} {quoted(f'--gtest_filter={suite}.{case}')})")
        lines.append(f'set_tests_properties({name} PROPERTIES LABELS {label} SKIP_REGULAR_EXPRESSION "\\\\[  SKIPPED \\\\]")')
    Path(file).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
