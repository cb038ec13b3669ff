"""The process around the program: descriptors, pipes, signals, limits, and disks that are full."""
import os
import signal
import subprocess

from attack_cases.case import Case, after
from attack_cases.runs import OWN, metrics_go_on

QUICK = ["train", "t.yaml", "--quiet"]
ENDLESS = ["train", "t.yaml", "--set", "train.steps=100000000", "--set", "train.save_every=0"]


def shell(script):
    """The program as "$0" in a line of bash."""
    return ["bash", "-c", script, "OCTET"]


def descriptors(shop):
    def no_message_within(folder, code, _):
        for name in ("metrics.jsonl", "telemetry.jsonl", "config.yaml"):
            path = os.path.join(folder, "run", name)
            if os.path.exists(path):
                with open(path, "rb") as file:
                    if any(word in file.read() for word in (b"step 1/", b"saved step", b"train_loss  ")):
                        return f"messages within {name}"
        return None

    for closed in range(1, 8):
        ends = " ".join(f"{n}>&-" for n in range(3) if closed >> n & 1)
        for words in ("train t.yaml", "inspect text.txt", "report r", "formats list", "--help", "none"):
            yield Case(f"descriptors/closed_{closed}_{words.split()[0]}", shell(f'"$0" {words} {ends}'),
                       shop.base() | {"r/metrics.jsonl": b'{"step":1,"loss":1}'}, afterwards=no_message_within,
                       also_fine=(2, 3) if closed & 4 else ())
    for words in ("--help", "--version", "train --help", "formats list", "docs configuration", "docs keys", "plan t.yaml",
                  "plan t.yaml --json", "opt --list", "doctor", "formats table e4m3", "train t.yaml --quiet"):
        yield Case(f"descriptors/full_{words.replace(' ', '_')}", shell(f'"$0" {words} >/dev/full'), shop.base(), must_refuse=True)
        yield Case(f"descriptors/closed_pipe_{words.replace(' ', '_')}", shell(f'"$0" {words} | true'), shop.base())


def pipes(shop):
    """Nobody ever writes into these, nor reads: refused, or waited on until a signal comes."""
    def piped(*names):
        def make(folder):
            for name in names:
                os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                os.mkfifo(os.path.join(folder, name))
        return make

    places = {"t.yaml": ["plan", "t.yaml"], "data.txt": [*QUICK, "--set", "data.train=[data.txt]"],
              "data.npy": [*QUICK, "--set", "data.train=[data.npy]"], "t.bin": [*QUICK, "--set", "data.tokenizer=t.bin"],
              "a.safetensors": ["inspect", "a.safetensors"], "m/config.json": ["plan", "c.yaml", "--set", "model.path=m"],
              "q": ["formats", "dequantize", "q"], "g.ir": ["opt", "g.ir"], "r/metrics.jsonl": ["report", "r"],
              "m/model.safetensors": ["inspect", "m"], "bits": ["formats", "encode", "--format=e4m3", "--bits=bits"],
              "w": ["optim-step", "--grads", "w", "--weights", "w", "--out", "o"], "run": QUICK, "run/metrics.jsonl": QUICK,
              "run/config.yaml": QUICK, "run/ckpt": QUICK, "run/ckpt/step-000004": [*QUICK, "--resume"]}
    for name, words in places.items():
        files = {key: data for key, data in shop.base().items() if key != name} | {"c.yaml": shop.base()["t.yaml"]}
        yield Case(f"pipes/{name}", ["OCTET", *words], files, make=piped(name), limit=15,
                   during=after(2, signal.SIGTERM), also_fine=(128 + signal.SIGTERM,))
    for words in ("plan /dev/stdin", "plan <(cat t.yaml)", "plan - ", "train /dev/stdin --quiet"):
        yield Case(f"pipes/config_{words.split()[1]}", shell(f'cat t.yaml | "$0" {words} --set model.layers=1 2>&1 | tee seen >&2; '
                                                            'exit ${PIPESTATUS[1]}'), shop.base(),
                   afterwards=is_as(shop.call("plan", "t.yaml", "--set", "model.layers=1")) if "plan" in words else None)
    for data in ("/dev/stdin", "<(cat text.txt)"):
        yield Case(f"pipes/data_{data[:4]}", shell(f'cat text.txt | "$0" train t.yaml --quiet --set data.train=[{data}]'),
                   shop.base())


def is_as(plan):
    """A configuration that came through a pipe was read, or refused: never the default model."""
    def check(folder, code, _):
        with open(os.path.join(folder, "seen"), "rb") as file:
            return "another model was taken" if code == 0 and file.read() != plan else None
    return check


def signals(shop):
    def whole(folder, code, _):
        for name in os.listdir(folder):
            if name.endswith(".tmp"):
                return f"left behind: {name}"
        return metrics_go_on(folder, 0, b"") if os.path.exists(os.path.join(folder, "run", "metrics.jsonl")) else None

    busy = {"tokens": ["train", "t.yaml", "--set", "data.train=[long.txt]"], "plan": ["plan", "t.yaml", "--set", "model.layers=2000"],
            "compile": ["train", "t.yaml", "--set", "model.layers=2000"], "steps": ENDLESS,
            "long_steps": [*ENDLESS, "--set", "train.batch=512"], "saves": [*ENDLESS, "--set", "train.save_every=1"],
            "resume": [*ENDLESS, "--resume"], "evaluations": [*ENDLESS, "--set", "train.eval_every=1"]}
    chooser = shop.random("signals")
    for name, words in busy.items():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for _ in range(3):
                files = shop.base() | ({"long.txt": shop.text * 1000} if name == "tokens" else {})
                delay = chooser.choice((0.02, 0.1, 0.3, 1))
                many = (number,) * chooser.choice((1, 1, 2))
                yield Case(f"signals/{name}_{number.name}_{delay}_{len(many)}", ["OCTET", *words, "--quiet"], files,
                           make=shop.with_run if name == "resume" else None, during=after(delay, *many), limit=20,
                           is_slow=delay > 0.2, also_fine=(128 + number, -number), changes=OWN, changes_always=OWN, afterwards=whole)


def limits(shop):
    chooser = shop.random("limits")
    for mib in range(40, 400, 12):
        words = chooser.choice([" ".join(QUICK), "plan t.yaml", "eval --model run --tokenizer bytes --data text.txt",
                                "inspect run", "train t.yaml --resume --quiet"])
        yield Case(f"limits/memory_{mib}_{words.split()[0]}", shell(f'ulimit -v {mib * 1024}; "$0" {words} --threads 2'),
                   shop.base(), make=shop.with_run, changes=OWN, changes_always=OWN, also_fine=(127,))
    for n in (2, 16, 64, 1000, 4096):
        yield Case(f"limits/threads_{n}", shell(f'ulimit -v 2000000; "$0" plan t.yaml --threads {n}'), shop.base(), limit=60)
        yield Case(f"limits/train_threads_{n}", shell(f'ulimit -v 2000000; "$0" train t.yaml --quiet --threads {n}'), shop.base(),
                   limit=60)
    for n in (3, 6, 10, 20):
        yield Case(f"limits/files_{n}", shell(f'ulimit -n {n}; "$0" train t.yaml --quiet'), shop.base(), also_fine=(127,))
    for kib in (0, 1, 4, 16, 64, 200):
        yield Case(f"limits/size_{kib}", shell(f'ulimit -f {kib}; "$0" train t.yaml --quiet'), shop.base())
        yield Case(f"limits/resume_size_{kib}", shell(f'ulimit -f {kib}; "$0" train t.yaml --quiet --resume --set train.steps=9'),
                   shop.base(), make=shop.with_run, changes=OWN, changes_always=OWN)


def disk(shop):
    """A small tmpfs; needs root."""
    def mounted(kib, resumed):
        def make(folder):
            target = os.path.join(folder, "small")
            os.mkdir(target)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", target], check=True)
            if resumed:
                subprocess.run(["cp", "-r", os.path.join(shop.folder, "run"), os.path.join(target, "run")], check=True)
        return make

    def unmount(folder):
        subprocess.run(["umount", "-l", os.path.join(folder, "small")], check=False, stderr=subprocess.DEVNULL)

    def newest_is_whole(folder, code, _):
        run = os.path.join(folder, "small", "run")
        if not os.path.isdir(os.path.join(run, "ckpt")):
            return None
        seen = subprocess.run([shop.program, "inspect", run], capture_output=True, check=False)
        return None if seen.returncode == 0 else "no checkpoint is whole: " + seen.stderr.decode()[:200]

    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
        return
    size = sum(os.path.getsize(os.path.join(parent, name)) for parent, _, names in os.walk(os.path.join(shop.folder, "run"))
               for name in names) // 1024
    own = tuple("small/" + pattern for pattern in OWN)
    def metrics_end_with_the_state(folder, code, _):
        run = os.path.join(folder, "small", "run")
        newest = max(os.listdir(os.path.join(run, "ckpt")), default="step-0") if os.path.isdir(os.path.join(run, "ckpt")) else "step-0"
        with open(os.path.join(run, "metrics.jsonl"), "rb") as file:
            n_steps = file.read().count(b"\n")
        return None if int(newest.split("-")[1]) == n_steps else f"{n_steps} steps, {newest} saved"

    for room in (200, 300):
        yield Case(f"disk/metrics_{room}", ["OCTET", *ENDLESS, "--quiet", "--set", "out=small/run"], shop.base(), must_refuse=True,
                   make=mounted(size // 2 + room, False), clean=unmount, limit=120, is_slow=True, afterwards=metrics_end_with_the_state)
    for share in (0.05, 0.2, 0.4, 0.6, 0.8, 1.1):
        yield Case(f"disk/fresh_{share}", ["OCTET", *QUICK, "--set", "out=small/run"], shop.base(),
                   make=mounted(max(8, int(size * share)), False), clean=unmount)
    for room in (8, 40, 90, 150, 300):
        yield Case(f"disk/resume_{room}", ["OCTET", *QUICK, "--resume", "--set", "train.steps=9", "--set", "out=small/run"],
                   shop.base(), make=mounted(size * 2 + room, True), clean=unmount, changes=own, changes_always=own,
                   afterwards=newest_is_whole)


CLASSES = {"descriptors": descriptors, "pipes": pipes, "signals": signals, "limits": limits, "disk": disk}

