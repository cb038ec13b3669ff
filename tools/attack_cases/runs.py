"""Runs: damaged checkpoints and hostile manifests under --resume, other configurations, and what lies in the way."""
import json
import os
import shutil
import struct

from attack_cases.case import EXTREMES, LEVELS, Case, mutated, mutated_text

FILES = ["model.safetensors", "optim.safetensors", "manifest.json", "COMPLETE"]
# A resumed run may write its logs on, save, and prune; the note and what it did not make stay.
OWN = (r"run/(metrics|telemetry)\.jsonl", r"run/(config\.yaml|config\.json|algorithms\.json)", r"run/events\..*",
       r"run/ckpt/step-.*", r"run/\.?lock.*", r"run/ckpt")
RESUME = ["OCTET", "train", "t.yaml", "--resume", "--quiet", "--set", "train.steps=6"]


def metrics_go_on(folder, code, _):
    """After success there is a line for each step; after a refusal nothing was touched (the judge sees that)."""
    if code != 0:
        return None
    with open(os.path.join(folder, "run", "metrics.jsonl"), encoding="utf-8") as file:
        steps = [json.loads(line)["step"] for line in file]
    return None if steps == list(range(1, len(steps) + 1)) else f"metrics.jsonl holds steps {steps[:9]}"


def xxh64(data):
    """XXH64 with seed 0, which markers hold; https://xxhash.com, the algorithm's description."""
    p1, p2, p3 = 11400714785074694791, 14029467366897019727, 1609587929392839161
    p4, p5, mask = 9650029242287828579, 2870177450012600261, 2**64 - 1

    def turned(x, n):
        return (x << n | x >> (64 - n)) & mask

    def round_of(state, word):
        return turned(state + word * p2 & mask, 31) * p1 & mask

    words = struct.unpack(f"<{len(data) // 8}Q", data[:len(data) // 8 * 8])
    n_striped = len(data) // 32 * 4
    state = p5
    if n_striped:
        lanes = [p1 + p2 & mask, p2, 0, -p1 & mask]
        for i in range(n_striped):
            lanes[i % 4] = round_of(lanes[i % 4], words[i])
        state = sum(turned(lane, n) for lane, n in zip(lanes, (1, 7, 12, 18))) & mask
        for lane in lanes:
            state = (state ^ round_of(0, lane)) * p1 + p4 & mask
    state = state + len(data) & mask
    for word in words[n_striped:]:
        state = turned(state ^ round_of(0, word), 27) * p1 + p4 & mask
    rest = data[len(words) * 8:]
    if len(rest) >= 4:
        state = turned(state ^ struct.unpack("<I", rest[:4])[0] * p1 & mask, 23) * p2 + p3 & mask
        rest = rest[4:]
    for byte in rest:
        state = turned(state ^ byte * p5 & mask, 11) * p1 & mask
    for shift, prime in ((33, p2), (29, p3)):
        state = (state ^ state >> shift) * prime & mask
    return state ^ state >> 32


def marked(path, name):
    """Makes the marker fit this file as it is now."""
    marker = os.path.join(path, "COMPLETE")
    with open(marker, encoding="utf-8") as file:
        text = json.load(file)
    with open(os.path.join(path, name), "rb") as file:
        data = file.read()
    text["files"][name] = {"bytes": len(data), "xxh64": f"{xxh64(data):016x}"}
    with open(marker, "w", encoding="utf-8") as file:
        json.dump(text, file)


def resumed(shop, name, spoil, *, command=RESUME, check=metrics_go_on, **more):
    def make(folder):
        shop.with_run(folder)
        spoil(os.path.join(folder, "run"))
    more.setdefault("changes", OWN)
    more.setdefault("changes_always", (r"run/\.?lock.*",))  # who held it last
    return Case(name, command, shop.base(), make=make, afterwards=check, **more)


def replaced(path, data):
    with open(path, "wb") as file:
        file.write(data)


def checkpoint(shop):
    chooser = shop.random("checkpoint")

    def damage(kind, step, file):
        def spoil(run):
            path = os.path.join(run, "ckpt", step, file)
            with open(path, "rb") as whole:
                data = whole.read()
            os.unlink(path)
            if kind == "empty":
                replaced(path, b"")
            elif kind == "cut":
                replaced(path, data[:len(data) // 2])
            elif kind == "flipped":
                replaced(path, data[:99] + bytes([data[99] ^ 1]) + data[100:] if len(data) > 99 else b"x")
            elif kind == "folder":
                os.mkdir(path)
            elif kind == "link":
                replaced(path + ".real", data)
                os.symlink(path + ".real", path)
            elif kind == "lost_link":
                os.symlink("/nowhere/at/all", path)
            elif kind == "pipe":
                os.mkfifo(path)
            elif kind == "random":
                replaced(path, mutated(chooser, data))
        return spoil

    steps = sorted(os.listdir(os.path.join(shop.folder, "run", "ckpt")))
    for step in steps:
        for file in FILES:
            for kind in ("gone", "empty", "cut", "flipped", "folder", "link", "lost_link", "pipe", "random", "random"):
                if step != steps[-1] and chooser.random() < 0.7:
                    continue
                yield resumed(shop, f"checkpoint/{step}_{file}_{kind}", damage(kind, step, file))
    newest = steps[-1]

    def both_damaged(run):
        for step in steps:
            damage("cut", step, "model.safetensors")(run)

    def moved(run):
        shutil.move(os.path.join(run, "ckpt"), os.path.join(run, "..", "away"))
        os.symlink("/not/mounted/ckpt", os.path.join(run, "ckpt"))

    def linked(run):
        for step in steps:
            shutil.move(os.path.join(run, "ckpt", step), os.path.join(run, "..", step))
            os.symlink(os.path.join("..", "..", step), os.path.join(run, "ckpt", step))

    def dangling(run):
        for step in steps:
            shutil.rmtree(os.path.join(run, "ckpt", step))
            os.symlink("/not/mounted/" + step, os.path.join(run, "ckpt", step))

    def as_file(run):
        shutil.move(os.path.join(run, "ckpt"), os.path.join(run, "..", "away"))
        replaced(os.path.join(run, "ckpt"), b"the user's own")

    def renamed(name):
        return lambda run: os.rename(os.path.join(run, "ckpt", newest), os.path.join(run, "ckpt", name))

    def beside(name):
        def spoil(run):
            os.mkdir(os.path.join(run, "ckpt", name))
            replaced(os.path.join(run, "ckpt", name, "mine"), b"the user's own")
        return spoil

    wholes = {"ckpt_lost": moved, "steps_lost": dangling, "ckpt_is_file": as_file, "both_damaged": both_damaged}
    for name, spoil in wholes.items():
        yield resumed(shop, f"checkpoint/{name}", spoil, must_refuse=True)
        yield resumed(shop, f"checkpoint/{name}_fresh", spoil, must_refuse=True,
                      command=["OCTET", "train", "t.yaml", "--quiet", "--set", "optim.lr=1e-4"])
    yield resumed(shop, "checkpoint/steps_linked", linked)
    for name in ("step-000900", "step-4", "step-0000004", "step-999999999999999999999", "step--00001", "step-000004.tmp", "x"):
        yield resumed(shop, f"checkpoint/renamed_{name}", renamed(name))
    for name in ("backup", "backup.tmp", "step-000009.tmp", ".hidden", "step-abc", "\x1b]0;x\x07"):
        patterns = tuple(p for p in OWN if p != r"run/ckpt/step-.*") + (r"run/ckpt/step-\d+/.*", r"run/ckpt/step-00000[0-8]")
        yield resumed(shop, f"checkpoint/beside_{ascii(name)[1:-1]}", beside(name),
                      changes=patterns + ((r"run/ckpt/step-000009\.tmp.*",) if name.startswith("step-000009") else ()))
    for file in ("metrics.jsonl", "telemetry.jsonl", "config.yaml", "config.json"):
        for kind, data in (("nuls", bytes(500)), ("cut", b'{"step": 1, "lo'), ("list", b"[]\n" * 9), ("empty", b""),
                           ("deep", b"[" * LEVELS), ("other", b'{"step": 3, "loss": 1}\n{"step": 1}\n')):
            yield resumed(shop, f"checkpoint/{file}_{kind}",
                          lambda run, f=file, d=data: replaced(os.path.join(run, f), d), check=None)

        def piped(run, file=file):
            os.unlink(os.path.join(run, file))
            os.mkfifo(os.path.join(run, file))
        yield resumed(shop, f"checkpoint/{file}_pipe", piped, check=None)


def manifest(shop):
    chooser = shop.random("manifest")
    newest = shop.newest()
    source = json.loads(shop.get(f"run/ckpt/{newest}/manifest.json"))

    def spoil_with(data):
        def spoil(run):
            path = os.path.join(run, "ckpt", newest)
            replaced(os.path.join(path, "manifest.json"), data)
            marked(path, "manifest.json")
        return spoil

    for key in source:
        for value in chooser.sample([0, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 1e308, None, "", "x", [], {}, True,
                                     [2**63], {"a": 2**63}, "\x1b[31m"], 7):
            yield resumed(shop, f"manifest/{key}={ascii(value)[:16]}",
                          spoil_with(json.dumps(source | {key: value}).encode()))
    for i in range(40):
        text = json.dumps(source)
        data = mutated(chooser, text.encode()) if i % 2 else mutated_text(chooser, text, EXTREMES).encode()
        yield resumed(shop, f"manifest/random_{i}", spoil_with(data))
    for name, data in (("deep", b"[" * LEVELS), ("empty", b""), ("list", b"[]"), ("nuls", bytes(99))):
        yield resumed(shop, f"manifest/{name}", spoil_with(data))


def marker(shop):
    chooser = shop.random("marker")
    newest = shop.newest()
    source = json.loads(shop.get(f"run/ckpt/{newest}/COMPLETE"))
    facts = source["files"]["model.safetensors"]

    def spoil_with(data):
        return lambda run: replaced(os.path.join(run, "ckpt", newest, "COMPLETE"), data)

    texts = {"many": json.dumps({"format": "octet-complete", "files": {f"f{i}": facts for i in range(3000)}}),
             "none": json.dumps({"format": "octet-complete", "files": {}}), "deep": "[" * LEVELS}
    for name in ("../../../text.txt", "/etc/passwd", "..", ".", "", "a\0b", "a/b", "\x1b[31m", "/dev/zero"):
        texts[f"name_{ascii(name)[1:-1]}"] = json.dumps(
            {"format": "octet-complete", "files": source["files"] | {name: facts}})
    for key in facts:
        for value in (0, -1, 2**63, 2**64, 1e308, None, "", "x", [], "f" * 63, "\x1b"):
            files = source["files"] | {"model.safetensors": facts | {key: value}}
            texts[f"{key}={ascii(value)[:12]}"] = json.dumps({"format": "octet-complete", "files": files})
    for name, text in texts.items():
        yield resumed(shop, f"marker/{name}", spoil_with(text.encode()))
    for i in range(20):
        yield resumed(shop, f"marker/random_{i}", spoil_with(mutated(chooser, json.dumps(source).encode())))


def settings_of_resume(shop):
    """Another model or recipe must be refused; nothing may be touched by that."""
    for pair in ("model.tied=true", "model.kind=olmo", "model.kind=gpt2", "model.heads=4", "model.rope_theta=5000",
                 "model.norm_eps=1e-3", "model.hidden=64", "model.layers=2", "model.ffn=128", "model.vocab=512",
                 "recipe=coat", "recipe=fp32"):
        yield resumed(shop, f"resume/{pair}", lambda run: None, command=[*RESUME, "--set", pair], must_refuse=True)
    for pair in ("optim.lr=1e-4", "train.batch=4", "train.accumulate=2", "optim.betas=[0.5,0.5]", "train.seed=7",
                 "optim.schedule=linear", "optim.clip=0", "optim.weight_decay=0", "train.steps=3", "train.keep=1", "model.seq=16",
                 "data.train=[t.yaml]", "optim.state_m=e4m3", "optim.master=fp32", "train.save_every=1", "optim.eps=1e-4",
                 "train.keep=4294967297", "train.keep=2147483648"):
        yield resumed(shop, f"resume/{pair}", lambda run: None, command=[*RESUME, "--set", pair])
    for pair in ("train.steps=4", "optim.lr=1e-4", "train.keep=1"):
        yield resumed(shop, f"resume/fresh_{pair}", lambda run: None, must_refuse=True,
                      command=["OCTET", "train", "t.yaml", "--quiet", "--set", pair])

    def notes_alone(folder):
        os.makedirs(os.path.join(folder, "run", "bf16"))
        replaced(os.path.join(folder, "run", "notes.txt"), b"the user's own")
        replaced(os.path.join(folder, "run", "bf16", "config.yaml"), b"recipe: bf16 # the user's own\n")
        replaced(os.path.join(folder, "run", "bf16", "thesis.txt"), b"the user's own")

    def linked(folder):
        notes_alone(folder)
        os.rename(os.path.join(folder, "run"), os.path.join(folder, "real"))
        os.symlink("real", os.path.join(folder, "run"))

    for name, make in (("notes", notes_alone), ("linked", linked)):
        for data in ("text.txt", "nowhere.txt", "t.yaml"):
            yield Case(f"resume/compare_{name}_{data}",
                       ["OCTET", "compare", "--out", "run", "--recipes", "bf16", "--steps", "1", "--data", data, "--quiet"],
                       shop.base(), make=make, limit=120)
    yield Case("resume/compare_run", ["OCTET", "compare", "--out", ".", "--recipes", "run", "--steps", "1", "--data", "text.txt"],
               shop.base(), make=shop.with_run)
    own = shop.base() | {"x/config.yaml": "# mine\n" + shop.base()["t.yaml"].replace("out: run", "out: x"),
                         "x/text.txt": shop.text}
    yield Case("resume/own_config", ["OCTET", "train", "x/config.yaml", "--quiet", "--set", "out=x", "--set",
                                     "train.steps=1"], own)


CLASSES = {"checkpoint": checkpoint, "manifest": manifest, "marker": marker, "resume": settings_of_resume}
