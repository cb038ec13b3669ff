#!/usr/bin/env python3
"""check_filter.py PROGRAM FILTER: every pattern of a GoogleTest filter matches a test; one that matches nothing would pass unseen."""

import subprocess
import sys


def main():
    program, wanted = sys.argv[1:]
    taken, _, left_out = wanted.partition("-")
    idle = []
    for pattern in filter(None, taken.split(":") + left_out.split(":")):
        listed = subprocess.run([program, "--gtest_list_tests", f"--gtest_filter={pattern}"], capture_output=True, text=True, check=True).stdout
        if not any(line.startswith("  ") for line in listed.splitlines()):
            idle.append(pattern)
    if idle:
        sys.exit(f"no test of {program} matches {', '.join(idle)}")


if __name__ == "__main__":
    main()
