#!/usr/bin/env python3
"""Runs the program on hostile input and says what came of it, by class.

  tools/attack.py [--program build/tests/octet_low_limits] [--seconds 900] [--cases N] [--classes a,b] [--seed 1] [--list]

Each case is made in a folder of its own from the seed, so that the same seed tries the same cases; a clock that
runs out leaves the last of each class away. After each run everything that lay in the folder is compared with what
it was (SHA-256), so that `lost` is what was really changed or removed without being asked for.

  clear    refused: exit 2 to 5 and one line `octet: ...` that names what is at fault
  fine     accepted, and the case may be accepted; or ended by the signal that it was sent
  unclear  exit 1, no such line, control characters, or accepted although it must be refused
  crash    ended by a signal that nobody sent
  hang     still running at the limit
  lost     something of the user's was changed or removed

Ends with 1 where there is anything but clear and fine; --keep FOLDER keeps the folders of these. Python 3 alone.
"""
import argparse
import concurrent.futures
import hashlib
import itertools
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter

import attack_cases

VERDICTS = ["tried", "clear", "fine", "unclear", "crash", "hang", "lost"]
# What a terminal would obey; \n and \t are layout. U+0080 to U+009F are control characters too.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
BLAMES_NOBODY = re.compile(r"^octet: (out of memory|internal check failed.*|std::.*|basic_string.*|vector.*|bad .*|"
                           r"could not create a primitive.*|.*json\.exception.*|)$")


def fingerprint(path):
    """What lies at a path, so that any change of it shows: kind, mode, and bytes, target or names."""
    info = os.lstat(path)
    kind = stat.S_IFMT(info.st_mode)
    if stat.S_ISLNK(info.st_mode):
        return kind, os.readlink(path)
    if stat.S_ISREG(info.st_mode):
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        return kind, info.st_mode, digest.hexdigest()
    return kind, info.st_mode, info.st_rdev


def snapshot(folder):
    found = {}
    for parent, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(parent, name)
            found[os.path.relpath(path, folder)] = fingerprint(path)
    return found


def differences(before, after, may_change):
    """Names of what was there before and is not the same after, except what the case allows.

    What lay in the way of a checkpoint may be set aside as NAME....kept; the program says so.
    """
    def is_kept(name, was):
        return any(other.startswith(name + ".") and other.endswith(".kept") and is_now == was
                   for other, is_now in after.items())

    return [name for name, was in before.items()
            if after.get(name) != was and not any(re.fullmatch(pattern, name) for pattern in may_change)
            and not is_kept(name, was)]


def text_of(raw):
    """Standard error or output as text; what is no UTF-8 becomes a control character, so that it shows."""
    return raw.decode("utf-8", errors="replace").replace("\ufffd", "\x00")


def judge(case, code, out, err, changed):
    """(verdict, why)"""
    if changed:
        return "lost", "changed or gone: " + ", ".join(changed[:5])
    if code == "timeout":
        return "hang", f"ran for more than {case.limit} s"
    if code in case.also_fine:
        return "fine", ""
    if code < 0 or code >= 128:
        return "crash", f"ended with {code}"
    message = text_of(err)
    if OBEYED.search(message) or (not case.binary_output and OBEYED.search(text_of(out))):
        return "unclear", "control characters in its output"
    lines = [line for line in message.splitlines() if line.startswith("octet: ")]
    if code == 0:
        return ("unclear", "accepted") if case.must_refuse else ("fine", "")
    if code not in (2, 3, 4, 5) or len(lines) != 1 or message.splitlines()[-1] != lines[0]:
        return "unclear", f"exit {code}: {message.strip()[-200:]!r}"
    if BLAMES_NOBODY.match(lines[0]):
        return "unclear", f"blames nobody: {lines[0]}"
    return "clear", ""


class Runner:
    def __init__(self, program, keep):
        self.program, self.keep = program, keep
        self.counts, self.lock, self.bad = {}, threading.Lock(), []

    def execute(self, case, folder):
        arguments = [self.program if word == "OCTET" else word for word in case.command]
        feed = case.stdin if case.stdin is not None else b""
        child = subprocess.Popen(arguments, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, start_new_session=True, env=case.environment)
        watcher = threading.Thread(target=case.during, args=(child, folder), daemon=True) if case.during else None
        if watcher:
            watcher.start()
        try:
            out, err = child.communicate(feed, timeout=case.limit)
            return child.returncode, out, err
        except subprocess.TimeoutExpired:
            for end in (lambda: os.killpg(child.pid, 9), child.kill):
                try:
                    end()
                except ProcessLookupError:
                    pass
            out, err = child.communicate()
            return "timeout", out, err
        except BrokenPipeError:
            return child.wait(), b"", child.stderr.read()

    def run(self, case):
        folder = tempfile.mkdtemp(prefix="octet-attack-")
        try:
            case.setup(folder)
            before = snapshot(folder)
            code, out, err = self.execute(case, folder)
            changed = differences(before, snapshot(folder), case.may_change(code))
            verdict, why = judge(case, code, out, err, changed)
            if verdict in ("clear", "fine") and case.afterwards:
                problem = case.afterwards(folder, code, out)
                verdict, why = ("lost", problem) if problem else (verdict, why)
        finally:
            case.cleanup(folder)
            if self.keep and "verdict" in locals() and verdict not in ("clear", "fine"):
                shutil.copytree(folder, os.path.join(self.keep, re.sub(r"\W+", "_", case.name)), symlinks=True,
                                ignore=lambda path, names: [n for n in names if not is_plain(path, n)],
                                dirs_exist_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
        with self.lock:
            row = self.counts.setdefault(case.topic, Counter())
            row["tried"] += 1
            row[verdict] += 1
            if verdict not in ("clear", "fine"):
                self.bad.append((case, verdict, why))
                words = " ".join(case.command)
                print(f"{verdict}: {case.name}: {why}\n    {words[:300]!r}", flush=True)


def is_plain(folder, name):
    mode = os.lstat(os.path.join(folder, name)).st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def in_turns(groups):
    """One of each group in turn, so that a clock that runs out shortens all of them."""
    groups = [iter(group) for group in groups]
    while groups:
        left = []
        for group in groups:
            case = next(group, None)
            if case is not None:
                left.append(group)
                yield case
        groups = left


def sample(group, chooser):
    """In another order, without those that are to work until they are stopped."""
    group = [case for case in group if not case.is_slow]
    chooser.shuffle(group)
    return group


def print_table(counts):
    rows = sorted(counts.items())
    rows.append(("all", sum(counts.values(), Counter())))
    print(f"{'class':14}" + "".join(f"{verdict:>9}" for verdict in VERDICTS))
    for name, row in rows:
        print(f"{name:14}" + "".join(f"{row[verdict]:9}" for verdict in VERDICTS))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/tests/octet_low_limits")
    parser.add_argument("--seconds", type=float, default=900, help="no new case after this time")
    parser.add_argument("--cases", type=int, default=0, help="so many of all, drawn by the seed, of each class in turn; 0: all")
    parser.add_argument("--classes", default="", help="with commas; without: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", help="folder that keeps what the bad cases worked on")
    parser.add_argument("--list", action="store_true", help="number of cases by class")
    return parser.parse_args()


def main():
    args = arguments()
    program = os.path.abspath(args.program)
    if not os.access(program, os.X_OK):
        sys.exit(f"attack: expected a program, got {args.program} (make build)")
    known = attack_cases.classes()
    names = args.classes.split(",") if args.classes else list(known)
    for name in names:
        if name not in known:
            sys.exit(f"attack: unknown class {name}, expected some of {', '.join(known)}")
    began = time.time()
    with attack_cases.Workshop(program, args.seed) as workshop:
        groups = [list(known[name](workshop)) for name in names]
        if args.cases:
            groups = [sample(group, workshop.random(f"sample of {name}")) for name, group in zip(names, groups)]
        if args.list:
            for name, group in zip(names, groups):
                print(f"{name:14}{len(group):6}")
            print(f"{'all':14}{sum(map(len, groups)):6}")
            return 0
        runner = Runner(program, args.keep)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            waiting = set()
            for case in itertools.islice(in_turns(groups), args.cases or None):
                if time.time() - began > args.seconds:
                    break
                waiting.add(pool.submit(runner.run, case))
                if len(waiting) >= 2 * args.jobs:
                    done, waiting = concurrent.futures.wait(
                        waiting, return_when=concurrent.futures.FIRST_COMPLETED)
                    for future in done:
                        future.result()
            for future in waiting:
                future.result()
    print_table(runner.counts)
    print(f"{sum(row['tried'] for row in runner.counts.values())} of {sum(map(len, groups))} cases in "
          f"{time.time() - began:.0f} s, seed {args.seed}; {len(runner.bad)} neither clear nor fine")
    return 1 if runner.bad else 0


if __name__ == "__main__":
    sys.exit(main())
