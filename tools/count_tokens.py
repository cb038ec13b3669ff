#!/usr/bin/env python3
"""Size of the project's C++ and CUDA by folder, as tokens without comments: shorter comments or fuller lines win nothing.

    tools/count_tokens.py [ROOT]            a line a folder
    tools/count_tokens.py --write [ROOT]    writes README's table of sizes by floor anew
    tools/count_tokens.py --check [ROOT]    exits 1 if that table is stale: a number is wrong by more than 6 %, and by more than
                                            1,500 lines or 15,000 tokens

The floors are those of the table in docs/architecture.md. A folder of src that the table lacks is a fault.
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

FLOOR_ROW = re.compile(r"(?m)^\| (\d+) \| ([\w/, ]+) \|")
HEAD = "| floor | folders, with thousand lines | thousand lines in all | thousand tokens |\n| --- | --- | --- | --- |\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")
OTHERS = {"-": ["include", "bench", "tests"]}
# A day's work stays within them.
TOLERANCE, LEAST_LINES, LEAST_TOKENS = 0.06, 1.5, 15.0


def count(text):
    return sum(match.group(1) is None for match in PIECE.finditer(text))


def sizes(root):
    """Tokens and lines of C++ and CUDA by folder: those below src (backends' too) and tests, and the others of the root."""
    tokens, lines = Counter(), Counter()
    for name, path in project_files(root):
        if path.suffix not in CODE:
            continue
        parts = name.split("/")
        depth = 3 if parts[1:2] == ["backends"] else 2
        folder = "/".join(parts[:min(depth, len(parts) - 1)]) if parts[0] in ("src", "tests") else parts[0]
        text = path.read_text(encoding="utf-8")
        tokens[folder] += count(text)
        lines[folder] += text.count("\n")
    return tokens, lines


def floors(architecture, folders):
    """{floor: folders} of the table in docs/architecture.md, which has every folder of src once."""
    found = {}
    for floor, names in FLOOR_ROW.findall(architecture):
        found.setdefault(floor, []).extend(names.split(", "))
    named = sorted(name for names in found.values() for name in names)
    expected = sorted([*(folder.removeprefix("src/") for folder in folders if folder.startswith("src/")), "cli", "python"])
    if named != expected:
        raise SystemExit(f"docs/architecture.md: expected floors of {expected}, got {named}")
    return found


def table(root):
    """The rows of README's table, and (what, number, least tolerance) of each number in their order."""
    tokens, lines = sizes(root)
    by_floor = floors((root / "docs/architecture.md").read_text(), tokens)
    text, numbers = HEAD, []
    for floor, names in [*by_floor.items(), *OTHERS.items()]:
        cells, sum_lines, sum_tokens = [], 0, 0
        for name in names:
            keys = [key for key in tokens if key in (name, f"src/{name}") or key.startswith(f"{name}/")]
            n_lines = sum(lines[key] for key in keys)
            sum_lines, sum_tokens = sum_lines + n_lines, sum_tokens + sum(tokens[key] for key in keys)
            cells.append(f"{name} {n_lines / 1000:.1f}")
            numbers.append((f"lines of {name}", n_lines / 1000, LEAST_LINES))
        text += f"| {floor} | {', '.join(cells)} | {sum_lines / 1000:.0f} | {sum_tokens / 1000:.0f} |\n"
        numbers += [(f"lines of floor {floor}", sum_lines / 1000, LEAST_LINES),
                    (f"tokens of floor {floor}", sum_tokens / 1000, LEAST_TOKENS)]
    return text, numbers


def faults(shown, numbers):
    """The numbers of the shown table that are wrong by more than the tolerance."""
    read = [float(number) for row in shown.split("\n")[2:-1] for number in re.findall(r"(?<= )[\d.]+(?=[, ])", row.split("|", 2)[2])]
    if len(read) != len(numbers):
        yield f"expected {len(numbers)} numbers, got {len(read)}"
    for got, (what, expected, least) in zip(read, numbers):
        if abs(got - expected) > max(TOLERANCE * expected, least):
            yield f"{what}: expected {expected:.1f} thousand, got {got:g}"


def main(arguments):
    options = {one for one in arguments[1:] if one.startswith("--")}
    names = [one for one in arguments[1:] if one not in options]
    root = Path(names[0] if names else Path(__file__).resolve().parent.parent)
    readme = root / "README.md"
    if options:
        new, numbers = table(root)
        shown = TABLE.search(readme.read_text())
        if not shown:
            raise SystemExit(f"README.md: expected a table that begins\n{HEAD}")
        if "--write" in options:
            readme.write_text(readme.read_text().replace(shown[0], new))
            return 0
        found = list(faults(shown[0], numbers))
        print("".join(f"README.md: {fault}; tools/count_tokens.py --write\n" for fault in found), end="")
        print(f"sizes: {len(numbers)} numbers, {len(found)} faults")
        return 1 if found else 0
    tokens, lines = sizes(root)
    tokens["src in all"] = sum(n for folder, n in tokens.items() if folder.startswith("src"))
    lines["src in all"] = sum(n for folder, n in lines.items() if folder.startswith("src"))
    for folder in sorted(tokens):
        print(f"{tokens[folder]:10,} tokens {lines[folder]:8,} lines  {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
