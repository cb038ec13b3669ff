#!/usr/bin/env python3
"""Size of the project's C++ and CUDA by folder, as tokens without comments: shorter comments or fuller lines win nothing.

    tools/count_tokens.py [ROOT]
"""

import re
import sys
from collections import Counter
from pathlib import Path

from check_layers import CODE, project_files

# Comments stand in the first group; a string that looks like one does not.
PIECE = re.compile(
    r"""(//[^\n]*|/\*.*?\*/)"""
    r"""|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'"""
    r"""|[A-Za-z_]\w*|\.?\d(?:[\w.']|(?<=[eEpP])[+-])*"""
    r"""|<<=|>>=|\.\.\.|->\*|<=>|::|<<|>>|[-+*/%&|^=!<>]=|->|&&|\|\||\+\+|--|\#\#|\S""", re.DOTALL)


def count(text):
    return sum(match.group(1) is None for match in PIECE.finditer(text))


def main(arguments):
    root = Path(arguments[1] if len(arguments) > 1 else Path(__file__).resolve().parent.parent)
    tokens, lines = Counter(), Counter()
    for name, path in project_files(root):
        if path.suffix not in CODE:
            continue
        parts = name.split("/")
        depth = 3 if parts[1:2] == ["backends"] else 2
        folder = "/".join(parts[:min(depth, len(parts) - 1)]) if parts[0] in ("src", "tests") else parts[0]
        text = path.read_text(encoding="utf-8")
        for key in (folder, "src in all" if parts[0] == "src" else None):
            if key:
                tokens[key] += count(text)
                lines[key] += text.count("\n")
    for folder in sorted(tokens):
        print(f"{tokens[folder]:10,} tokens {lines[folder]:8,} lines  {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
