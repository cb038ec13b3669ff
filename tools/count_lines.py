#!/usr/bin/env python3
"""Counts lines of the project by folder: files, code, comments, blank.

    tools/count_lines.py [ROOT]
"""

import sys
from collections import Counter
from pathlib import Path

from check_layers import CODE, project_files, without_comments


def count(text):
    """(code, comment, blank) lines. A line with both code and comment is code."""
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    stripped = without_comments(text).split("\n")
    blank = sum(not line.strip() for line in lines)
    code = sum(bool(line.strip()) for line in stripped[: len(lines)])
    return code, len(lines) - blank - code, blank


def main(arguments):
    root = Path(arguments[1] if len(arguments) > 1 else Path(__file__).resolve().parent.parent)
    totals = {}
    for name, path in project_files(root):
        if path.suffix not in CODE:
            continue
        parts = name.split("/")
        folder = "/".join(parts[:2]) if parts[0] in ("src", "tests") and len(parts) > 2 else parts[0]
        code, comment, blank = count(path.read_text(encoding="utf-8"))
        row = totals.setdefault(folder, Counter())
        row.update(files=1, code=code, comment=comment, blank=blank)
    totals["total"] = sum(totals.values(), Counter())
    print(f"{'folder':24}{'files':>8}{'code':>8}{'comment':>9}{'blank':>8}")
    for folder, row in totals.items():
        print(f"{folder:24}{row['files']:8}{row['code']:8}{row['comment']:9}{row['blank']:8}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
