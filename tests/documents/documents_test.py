"""Every block of shell commands in README.md and docs is parsed, and run as it is printed.

  documents_test.py parse             which blocks are there, whether bash parses them, whether their files exist
  documents_test.py run PROGRAM       runs them: a folder a page, with the inputs of tiny_inputs.py
  documents_test.py plans PROGRAM     the lines of plans that pages show are lines that the page's command prints
  documents_test.py paths             of the pages about the code: every file that they name is there, and has what they say it has;
                                      names without a file are words of some source

`parse` also looks for the functions and types that pages name with their files, (`name`, `src/path`) or `name` (`src/path`), for what
links lead to, and for the date and commit of each entry of docs/LOG.md.

A block that installs, builds, tests, downloads or needs a GPU says so in its first line (`# builds ...`), and is parsed alone, as
are the pages of docs/results, which are records. `octet train` takes 4 steps where the line names no number.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tiny_inputs

ROOT = Path(__file__).resolve().parents[2]
STARTS = re.compile(r"(sudo|make|pip|hf|git|curl|cmake|ctest|export|mpirun|srun|torchrun|grep|python3?|(build/)?octet|\./dev|"
                    r"tools/\w+\.(py|sh)|[A-Z_]+=\S+)( |$)")
MARKED = re.compile(r"# (installs|builds|tests|downloads|needs)\b")
FILE = re.compile(r"(?<![\w/.])(?:build/\.\./)?((?:recipes|tools)/[\w./-]+\.(?:yaml|py|sh|sbatch))\b")
NAMED = re.compile(r"`([A-Za-z_][\w:]*)`(?:,| \() ?`((?:\w+/)+\w+\.(?:h|cpp|cu|cuh))`")
# Of the pages about the code: `name` (`path`), `name` and `name` (`path`), (`name`, `path`), `name` in `path`.
CODE_PAGES = ("docs/architecture.md", "docs/fp8_in_ten_minutes.md", "docs/adding/*.md", "docs/bits.md")
NAME = r"`[A-Za-z_][\w:]*`"
IN_FILE = re.compile(rf"({NAME}(?:(?:,? and | or |, ){NAME})*)(?: \(| in |, (?=`[^`]+`\)))`([^` ]+)`")
COMMENT = re.compile(r"(?m)^ *// ([\w/]+\.\w+), in (\w[\w:]*\w)")
SOURCE = re.compile(r"[\w./*-]*[\w*]\.(?:h|cpp|cuh|cu|def|py|sh|md|txt|cmake)$")
# Small enough to be trained here; the other recipes' lines are parsed.
TRAINED = ("continue", "finetune-instruct", "finetune-math", "finetune-tools", "llama-3m", "gpt2-small-0")
SHIM = """#!/bin/bash
steps=()
if [ "$1" = train ] && [[ "$*" != *train.steps=* ]]; then steps=(--set train.steps=4); fi
if [[ "$*" == *train.epochs=* ]]; then steps+=(--set train.epochs=0); fi
"{program}" "$@" "${{steps[@]}}"
code=$?
arguments="$*"
echo "$code octet ${{arguments//$'\\n'/ }}" >>"{log}"
exit $code
"""


@dataclass
class Block:
    page: str
    line: int
    text: str
    is_fenced_shell: bool = True

    @property
    def name(self):
        return f"{self.page}:{self.line}"

    @property
    def is_record(self):
        return self.page.startswith("docs/results/")

    @property
    def is_run(self):
        return not self.is_record and not MARKED.match(self.text)


def fenced(page, lines):
    begin = None
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("```"):
            continue
        if begin is None:
            begin = number
            continue
        language = lines[begin - 1].strip().strip("`")
        text = "\n".join(lines[begin:number - 1]) + "\n"
        if language == "sh" or (not language and any(STARTS.match(row) for row in text.split("\n"))):
            yield Block(page, begin, text, language == "sh")
        begin = None


def indented(page, lines):
    """Blocks of four spaces that hold a command."""
    rows, inside = [], False
    for number, line in enumerate([*lines, ""], 1):
        inside ^= line.lstrip().startswith("```")
        if not inside and line.startswith("    "):
            rows.append(line[4:])
            continue
        if any(STARTS.match(row) for row in rows):
            yield Block(page, number - len(rows), "\n".join(rows) + "\n", False)
        rows = []


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks():
    for page in pages():
        name, lines = str(page.relative_to(ROOT)), page.read_text().split("\n")
        yield from sorted([*fenced(name, lines), *indented(name, lines)], key=lambda block: block.line)


def recipe_blocks():
    """The line below "Run:" at the head of each recipe."""
    for recipe in sorted((ROOT / "recipes").rglob("*.yaml")):
        lines = recipe.read_text().split("\n")
        found = [(i, line.split("Run:", 1)[1].strip()) for i, line in enumerate(lines, 1) if "Run:" in line]
        assert len(found) == 1, f"{recipe}: expected one line with 'Run:', got {len(found)}"
        text = found[0][1] if recipe.stem in TRAINED else "# needs a GPU, or hours\n" + found[0][1]
        assert f"octet train {recipe.relative_to(ROOT)} " in text + " ", f"{recipe}: expected its own command, got {text}"
        yield Block(str(recipe.relative_to(ROOT)), found[0][0], text + "\n")


def faults_of(block):
    if not block.is_record and not block.is_fenced_shell:
        yield "expected commands between ```sh and ```"
    parsed = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True)
    if parsed.returncode and not block.is_record:
        yield parsed.stderr.strip()
    for path in FILE.findall(block.text):
        if not (ROOT / path).exists():
            yield f"expected {path} to exist"


def faults_of_names():
    """Of what pages say to stand in a file: `name` (`src/path`) and (`name`, `src/path`)."""
    for page in pages():
        text = re.sub(r"\s+", " ", page.read_text())
        for name, path in NAMED.findall(text):
            file = next((at for at in (ROOT / path, ROOT / "src" / path) if at.exists()), None)
            if file is None:
                yield f"{page.relative_to(ROOT)}: expected {path} to exist"
            elif not re.search(rf"\b{re.escape(name.split('::')[-1])}\b", file.read_text()):
                yield f"{page.relative_to(ROOT)}: expected {path} to have {name}"


def expanded(path):
    """a/{b,c}.h is a/b.h and a/c.h; <any> is *."""
    path = re.sub(r"<\w+>", "*", path)
    braces = re.search(r"\{([^{}]*)\}", path)
    if not braces:
        return [path]
    return [one for part in braces[1].split(",") for one in expanded(path[:braces.start()] + part.strip() + path[braces.end():])]


LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def anchors(text):
    """What a heading is called in links, as GitHub makes it."""
    for heading in re.findall(r"(?m)^#+ (.*)$", re.sub(r"(?ms)^```.*?^```", "", text)):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def faults_of_links():
    for page in pages():
        for link in LINK.findall(re.sub(r"`[^`\n]*`", "", re.sub(r"(?ms)^```.*?^```", "", page.read_text()))):
            if re.match(r"\w+:", link):
                continue
            path, _, anchor = link.partition("#")
            to = page.parent / path if path else page
            if not to.exists():
                yield f"{page.relative_to(ROOT)}: expected {path} to exist"
            elif anchor and anchor not in anchors(to.read_text()):
                yield f"{page.relative_to(ROOT)}: expected a heading of {to.name} for #{anchor}"


def git(*arguments):
    return subprocess.run(["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *arguments], capture_output=True, text=True)


def faults_of_log(text, has_history):
    """An entry begins with the date of a commit, its name and a bold subject; within a section the newest comes last."""
    latest = ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("#"):
            latest = ""
        if not line.startswith("- "):
            continue
        entry = re.match(r"- (\d{4}-\d\d-\d\d) `([0-9a-f]{8})` \*\*", line)
        if not entry:
            yield f"docs/LOG.md:{number}: expected '- DATE `COMMIT` **subject', got {line[:40]}"
            continue
        date, commit = entry.groups()
        if date < latest:
            yield f"docs/LOG.md:{number}: expected no entry before {latest}, got {date}"
        latest = date
        there = git("log", "-1", "--format=%ad", "--date=short", commit, "--").stdout.strip() if has_history else date
        if there != date:
            yield f"docs/LOG.md:{number}: expected a commit of {date}, got {there or 'none'} of {commit}"


class CodePage:
    """What a page says of files: below the root, src, or a folder that the page names, or beside a file that it names."""

    def __init__(self, name, text):
        self.name = name
        self.comments = COMMENT.findall(text)
        self.text = re.sub(r"\s+", " ", re.sub(r"(?ms)^```.*?^```", "", text))
        self.folders = [ROOT, ROOT / "src"]
        words = [word for span in re.findall(r"`([^`]+)`", self.text) for word in span.split()]
        paths = [path for word in words for path in expanded(word.rstrip(",:;")) if self.is_path(path)]
        for path in sorted(paths, key=lambda path: -path.count("/")):  # what lies beside others behind them
            self.find(path)
        self.missing = {path for path in paths if not self.find(path)}
        self.n_paths = len(paths)

    @staticmethod
    def is_path(word):
        first = word.split("/")[0]
        is_below = "/" in word and any((at / first).is_dir() for at in (ROOT, ROOT / "src"))
        is_made = first in ("", "build")
        return bool(re.fullmatch(r"[\w./*-]+", word)) and not is_made and (is_below or bool(SOURCE.match(word)))

    def find(self, path):
        """The files or folders of this name, of the first folder that has some."""
        for folder in self.folders:
            found = [one for one in folder.glob(path.rstrip("/")) if path[-1] != "/" or one.is_dir()]
            for one in found:
                at = one if one.is_dir() else one.parent
                if at not in self.folders:
                    self.folders.append(at)
            if found:
                return found
        return []

    def pairs(self):
        for names, path in IN_FILE.findall(self.text):
            if self.is_path(expanded(path)[0]):
                yield from ((name, path) for name in re.findall(r"`([^`]+)`", names))
        yield from ((name, path) for path, name in self.comments)

    def faults(self):
        yield from (f"{self.name}: expected {path} to exist" for path in sorted(self.missing))
        for name, path in self.pairs():
            found = [at for one in expanded(path) for at in self.find(one)]
            files = [file for at in found for file in ([at] if at.is_file() else at.rglob("*.*"))]
            text = "\n".join(file.read_text() for file in files)
            if any(not re.search(rf"\b{re.escape(part)}\b", text) for part in name.split("::")):
                yield f"{self.name}: expected {path} to have {name}"


def faults_of_loose_names(page, text, sources):
    """Names of the code that stand alone: each is a word of some source."""
    for name in sorted(set(re.findall(r"`([A-Za-z]\w*_\w+|[A-Z][a-z]+[A-Z]\w*)`", text))):
        if not re.search(rf"\b{name}\b", sources):
            yield f"{page}: expected a source with {name}"


# Four faults, so that the search is known to find some.
WRONG_PAGE = """`make_plan` (`plan/plan.h`), `make_plan` and `make_plans` (`src/plan/plan.h`), `src/plan/no_such.{h,cpp}`.
```cpp
// src/plan/plan.h, in NoPlan
```
"""


def paths():
    found = list(CodePage("wrong", WRONG_PAGE).faults())
    assert found == [f"wrong: expected {fault}" for fault in (
        "src/plan/no_such.cpp to exist", "src/plan/no_such.h to exist", "src/plan/plan.h to have make_plans",
        "src/plan/plan.h to have NoPlan")], found
    code_pages = [CodePage(str(at.relative_to(ROOT)), at.read_text()) for glob in CODE_PAGES for at in sorted(ROOT.glob(glob))]
    faults = [fault for page in code_pages for fault in page.faults()]
    sources = "\n".join(at.read_text() for folder in ("src", "cli") for at in sorted((ROOT / folder).rglob("*.*")) if SOURCE.match(at.name))
    assert list(faults_of_loose_names("wrong", "`make_plan` `make_plans`", sources)) == ["wrong: expected a source with make_plans"]
    for name in CODE_PAGES[:2]:
        faults += faults_of_loose_names(name, (ROOT / name).read_text(), sources)
    stops = re.findall(r"(?m)^\d+\. \*\*.*\n(?:   .*\n)*", (ROOT / "docs/architecture.md").read_text())
    faults += [f"docs/architecture.md: a stop of a step without a function of a file: {stop}" for stop in stops if not IN_FILE.search(stop)]
    assert len(stops) == 12, stops
    print("\n".join(faults))
    n_paths, n_pairs = sum(page.n_paths for page in code_pages), sum(len(list(page.pairs())) for page in code_pages)
    print(f"{len(code_pages)} pages, {n_paths} paths, {n_pairs} names in files, {len(faults)} faults")
    assert len(code_pages) >= 8 and n_paths >= 200 and n_pairs >= 80
    return 1 if faults else 0


def plan_lines(text):
    """role module | kernel | types of results, of each step that is printed."""
    for line in text.split("\n"):
        columns = [column.strip() for column in line.split(" | ")]
        if len(columns) != 4 or " <- " not in columns[2]:
            continue
        role, module = columns[0].split()[-2:]
        types = [re.sub(r'%\d+ |"[^"]*" ', "", one) for one in columns[2].split(" <- ")[0].split(", ")]
        yield f"{role} {module} | {columns[1]} | {', '.join(types)}"


def printed_plans(page):
    """(commands, lines) of each block of commands that only plan and the block of text right behind it."""
    for commands, lines in re.findall(r"(?m)^```sh\n((?:[^`].*\n)+)```\n\n```text\n((?:[^`].*\n)+)```$", page.read_text()):
        if all(line.startswith("build/octet plan ") for line in commands.splitlines()):
            yield commands, [line for line in lines.splitlines() if line != "..."]


def plans(program):
    n_lines, n_printed, faults = 0, 0, []
    for page in pages():
        for commands, lines in printed_plans(page):
            text = subprocess.run(["bash", "-euc", commands.replace("build/octet", program)], cwd=ROOT, check=True,
                                  capture_output=True, text=True).stdout
            faults += [f"{page.relative_to(ROOT)}: not printed: {line}" for line in lines if line not in text.splitlines()]
            n_printed += len(lines)
    for page in pages():
        rows = [line.strip() for line in page.read_text().split("\n")]
        shown = [row for row in rows if re.match(r"(forward|backward|update) \S+ \| ", row)]
        commands = [row for row in rows if row.startswith("octet plan ") and " --steps" in row]
        if not shown:
            continue
        printed = subprocess.run([program, *commands[0].split()[1:]], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        there = set(plan_lines(printed))
        faults += [f"{page.relative_to(ROOT)}: not in the plan: {row}" for row in shown if row not in there]
        n_lines += len(shown)
    print("\n".join(faults))
    print(f"{n_lines} lines of plans, {n_printed} of what plans print, {len(faults)} faults")
    assert n_lines >= 9 and n_printed >= 10
    return 1 if faults else 0


# Two faults, so that the check is known to find some.
WRONG_LOG = """## One
- 2026-11-22 `00000000` **Later.**
- 2026-11-21 `00000000` **Earlier.**
- **Undated.**
"""


def parse():
    assert len(list(faults_of_log(WRONG_LOG, False))) == 2
    found = [*blocks(), *recipe_blocks()]
    has_history = (ROOT / ".git").exists() and git("rev-parse", "--is-shallow-repository").stdout.strip() == "false"
    faults = [f"{block.name}: {fault}" for block in found for fault in faults_of(block)]
    faults += [*faults_of_names(), *faults_of_links()]
    faults += faults_of_log((ROOT / "docs/LOG.md").read_text(), has_history)
    print("\n".join(faults))
    n_run = sum(block.is_run for block in found)
    print(f"{len(found)} blocks, {n_run} that are run, {len(faults)} faults")
    assert n_run >= 20 and {"README.md", "docs/finetuning.md"} <= {block.page for block in found if block.is_run}
    return 1 if faults else 0


class Folder:
    """Where the blocks of one page run, one after the other."""

    def __init__(self, path, inputs, program, has_run):
        self.path, self.log = path, path / "calls.log"
        shutil.copytree(inputs, path, symlinks=True, ignore=None if has_run else shutil.ignore_patterns("runs"))
        shim = SHIM.format(program=program, log=self.log)
        for name in ("build/octet", "bin/octet"):
            tiny_inputs.write(path / name, shim)
            (path / name).chmod(0o755)

    def run(self, text):
        """The exit code of bash, what it wrote, and the calls of octet with their exit codes."""
        self.log.unlink(missing_ok=True)
        environment = {**os.environ, "PATH": f"{self.path / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=self.path, env=environment, input="Hello\n",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=1200)
        return done.returncode, done.stdout, self.log.read_text().split("\n")[:-1] if self.log.exists() else []


def make_base(folder, program):
    tiny_inputs.make_inputs(folder)
    for name in ("recipes", "src", "tools", "docs"):
        (folder / name).symlink_to(ROOT / name)
    tiny_inputs.write(folder / "run.yaml", "model: {hidden: 64, layers: 1, heads: 2, ffn: 128, seq: 64}\n"
                      "data: {train: [my/texts]}\ntrain: {batch: 2, eval_every: 0}\nout: runs/mine\n")
    subprocess.run([program, "train", "run.yaml", "--quiet", "--set", "train.steps=4", "--set", "out=runs/first"], cwd=folder,
                   check=True, stdout=subprocess.DEVNULL)


def is_sound(block, folder):
    began = time.monotonic()
    code, output, calls = folder.run(block.text)
    n_expected = len(re.findall(r"(?m)^(?:\w+=\S+ )*(?:build/)?octet ", block.text))
    failed = [call for call in calls if not call.startswith("0 ")]
    fits = code == 0 and not failed and len(calls) >= n_expected
    print(f"{'ok  ' if fits else 'FAIL'} {block.name} {time.monotonic() - began:.1f} s, {len(calls)} calls", flush=True)
    if not fits:
        print(f"  bash ended with {code}; {len(calls)} of {n_expected} calls; failed: {failed}\n{output[-3000:]}")
    return fits


def run(program, only):
    found = [block for block in [*blocks(), *recipe_blocks()] if block.is_run and only in block.page]
    with tempfile.TemporaryDirectory() as scratch:
        inputs, folders, n_failed = Path(scratch) / "inputs", {}, 0
        make_base(inputs, program)
        for block in found:
            if block.page not in folders:
                path = Path(scratch) / re.sub(r"\W", "_", block.page)
                # The README begins where nothing is.
                folders[block.page] = Folder(path, inputs, program, has_run=block.page != "README.md")
            n_failed += not is_sound(block, folders[block.page])
    print(f"{len(found)} blocks run, {n_failed} failed")
    assert found
    return 1 if n_failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        sys.exit(run(str(Path(sys.argv[2]).resolve()), sys.argv[3] if len(sys.argv) > 3 else ""))
    if sys.argv[1:2] == ["plans"]:
        sys.exit(plans(str(Path(sys.argv[2]).resolve())))
    sys.exit(paths() if sys.argv[1:2] == ["paths"] else parse())
