"""One hostile input, and what all of them are made from: small whole files of the program's own."""
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from typing import Callable, Optional

TINY = """model: {kind: llama, hidden: 32, layers: 1, heads: 2, ffn: 64, vocab: 256, seq: 32}
recipe: bf16
optim: {lr: 2.0e-3}
data: {train: [text.txt], tokenizer: bytes}
train: {steps: 4, batch: 2, seed: 1, eval_every: 0, eval_bytes: 512, save_every: 2, keep: 3}
out: run
"""
# Cases go a little beyond the limits of octet_low_limits (tests/low_limits/input_limits.cpp), so that no other program
# is hurt by them: more levels than it reads, bytes than it unpacks or makes of a text, items than a template counts.
LEVELS, UNPACKED, TEXT_BYTES, ITEMS = 40, 200_000, 20_000, 300
WORDS = ["scale ", "amax ", "group ", "moment ", "remainder ", "step\n"]


@dataclass
class Case:
    name: str                      # class/what
    command: list                  # OCTET stands for the program; it runs in the case's folder
    files: dict = field(default_factory=dict)        # name -> bytes, beside the user's own files
    make: Optional[Callable] = None                  # f(folder), after the files
    stdin: Optional[bytes] = None
    limit: float = 30
    is_slow: bool = False          # meant to meet a limit of time
    must_refuse: bool = False
    also_fine: tuple = ()          # exit codes
    binary_output: bool = False
    changes: tuple = ()            # patterns of names that a run may change when it succeeds
    changes_always: tuple = ()     # ... and when it fails
    during: Optional[Callable] = None                # f(child, folder), beside the run
    afterwards: Optional[Callable] = None            # f(folder, code, out) -> what is lost, or None
    clean: Optional[Callable] = None                 # f(folder), before it is removed
    environment: Optional[dict] = None

    @property
    def topic(self):
        return self.name.split("/")[0]

    def setup(self, folder):
        for name, data in self.files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data if isinstance(data, bytes) else data.encode())
        if self.make:
            self.make(folder)

    def cleanup(self, folder):
        if self.clean:
            self.clean(folder)

    def may_change(self, code):
        return self.changes_always + (self.changes if code == 0 or code in self.also_fine else ())


def after(delay, *numbers):
    def during(child, folder):
        time.sleep(delay)
        for number in numbers:
            if child.poll() is None:
                os.kill(child.pid, number)
                time.sleep(0.01)
    return during


class Workshop:
    """Random choices by class, and a run, a model, a graph and a file of codes to spoil."""

    def __init__(self, program, seed):
        self.program, self.seed = program, seed
        self.folder = tempfile.mkdtemp(prefix="octet-attack-base-")

    def __enter__(self):
        chooser = self.random("text")
        self.text = "".join(chooser.choice(WORDS) for _ in range(4000)).encode()
        self.put("text.txt", self.text)
        self.put("t.yaml", TINY.encode())
        self.call("train", "t.yaml", "--quiet")
        self.floats = b"".join(chooser.randbytes(3) + bytes([chooser.choice((60, 61, 62, 189, 190))])
                               for _ in range(64))
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def random(self, name):
        return random.Random(f"{self.seed}/{name}")

    def put(self, name, data):
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(data)

    def get(self, name):
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()

    def call(self, *words, stdin=b""):
        done = subprocess.run([self.program, *words], cwd=self.folder, input=stdin, capture_output=True, timeout=120)
        if done.returncode != 0:
            raise SystemExit(f"attack: octet {' '.join(words)}: {done.stderr.decode()}")
        return done.stdout

    def base(self):
        """Files of a small run that has not begun."""
        return {"text.txt": self.text, "t.yaml": TINY}

    def with_run(self, folder, *, notes=True):
        """A finished run in run/, with a note of the user's in it."""
        shutil.copytree(os.path.join(self.folder, "run"), os.path.join(folder, "run"))
        if notes:
            with open(os.path.join(folder, "run", "notes.txt"), "w") as file:
                file.write("the user's own")

    def newest(self):
        return max(os.listdir(os.path.join(self.folder, "run", "ckpt")))

    def config_keys(self):
        """(key, default, kind) of every configuration key."""
        lines = self.call("docs", "keys").decode().splitlines()
        found = [re.match(r"  ([a-z_0-9.]+) = (.*?)(?: [a-z-]+)?: .*\(([^()]*|.*)\)$", line) for line in lines]
        return [match.groups() for match in found if match]

    def flags(self):
        """(words of the command, flag, type) for every flag of every command."""
        found = []

        def read(words):
            in_commands = False
            for line in self.call(*words, "--help").decode().splitlines():
                match = re.match(r"  (?:-h,)?(--[a-z0-9-]+)(?:,!--[a-z-]+)?(?: ([A-Z]+\S*))?", line)
                if match:
                    found.append((words, match.group(1), match.group(2) or ""))
                elif line == "Subcommands:":
                    in_commands = True
                elif in_commands and (match := re.match(r"  ([a-z-]+)", line)):  # "states, optimizer-states": aliases
                    read(words + [match.group(1)])

        read([])
        return found


def mutated(chooser, data):
    """Some bytes other than they were: flipped, cut, repeated, removed or put in."""
    data = bytearray(data)
    for _ in range(chooser.choice((1, 1, 2, 4, 16))):
        at = chooser.randrange(len(data) + 1)
        kind = chooser.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << chooser.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = chooser.choice((0, 1, 0x20, 0x22, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del data[at:at + chooser.choice((1, 2, 8, 64))]
        elif kind == 3:
            data[at:at] = chooser.randbytes(chooser.choice((1, 4, 8)))
        elif kind == 4:
            data[at:at] = data[at:at + chooser.choice((4, 16, 64))]
        else:
            del data[at:]
    return bytes(data)


def mutated_text(chooser, text, values):
    """One number or word of the text becomes an extreme one."""
    places = list(re.finditer(r"-?\d+(?:\.\d+)?(?:e-?\d+)?|[A-Za-z_][A-Za-z_0-9.]*", text))
    if not places:
        return text
    place = chooser.choice(places)
    return text[:place.start()] + str(chooser.choice(values)) + text[place.end():]


EXTREMES = ["0", "-1", "1", "2147483647", "2147483648", "-2147483649", "4294967295", "4294967296", "4294967297",
            "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
            "18446744073709551615", "18446744073709551616", "1e18", "1e19", "1e308", "1e309", "-1e308", "1e-320", "nan",
            "-nan", "inf", "-inf", ".inf", "0x10", "1_000", "", "null", "true", "[]", "{}", "[1,2,3]", "a\\nb", "%s",
            "../../etc/passwd", "\x1b[31mred", "\u202eevil"]
