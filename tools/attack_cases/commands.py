"""Commands on raw files: formats, optim-step, report, and where --out points."""
import json
import os
import stat
import struct

from attack_cases.case import EXTREMES, LEVELS, Case, mutated, mutated_text

FORMATS = ["e4m3", "e5m2", "hif8", "e8m0", "de8s", "de8u", "bf16", "fp16"]
ODD = struct.pack("<8f", 0, -0.0, 1e-45, 3e38, float("nan"), float("inf"), -float("inf"), 1)


def formats(shop):
    chooser = shop.random("formats")
    sizes = ["1x0", "1x-1", "1x9223372036854775807", "1x9223372036854775680", "1x4294967297", "0x0", "3x4", "tensor", "row",
             "9223372036854775807x9223372036854775807", "1x16", "128x128", "", "x", "1x", "\x1b[31m"]
    shapes = ["4,2", "2,4", "8,1", "0,0", "0,8", "2147483647,0", "2147483648,0", "-1,-8", "9223372036854775807,2", "8", "8,", ",",
              "2x4", "1e3,1", "4,2,1", ""]
    for i in range(110):
        command = ["quantize", f"--format={chooser.choice(FORMATS + ['f32', 'x', ''])}",
                   f"--shape={chooser.choice(shapes) if i % 3 else '2,4'}", f"--granularity={chooser.choice(sizes)}"]
        command += chooser.sample(["--expand", "--moment=v", "--math=fast", "--math=evil"], chooser.choice((0, 1, 2)))
        yield Case(f"formats/quantize_{i}", ["OCTET", "formats", *command], stdin=ODD, binary_output=True)
    for i in range(60):
        name = chooser.choice(FORMATS)
        command = chooser.choice([["encode", "--rounding", chooser.choice(["rne", "ta", "rtz", "sr", "hr", "hrv", "near", "x"])],
                                  ["encode", "--from", chooser.choice(["f16", "bf16", "f32", "e4m3"])],
                                  ["encode", "--bits", chooser.choice(["none", "b", "/dev/zero", ".", "/dev/null"])], ["decode"],
                                  ["encode", "--no-saturate", "--nan-to-zero"]])
        yield Case(f"formats/{command[0]}_{i}", ["OCTET", "formats", *command, "--format", name], {"b": bytes(7)},
                   stdin=chooser.choice((b"", b"123", ODD, chooser.randbytes(64))), binary_output=True)


def optim_step(shop):
    chooser = shop.random("optim_step")
    files = {"w": shop.floats, "g": shop.floats, "nan": ODD * 8, "odd": shop.floats[:-1], "none": b"", "o": b"the user's own"}
    real = ["--lr", "--beta1", "--beta2", "--eps", "--weight-decay", "--clip"]
    for flag in real:
        for value in ("nan", "inf", "-inf", "1e308", "-1e308", "1e999", "-1", "2", "0", "1e-320", "x"):
            yield Case(f"optim_step/{flag}={value}",
                       ["OCTET", "optim-step", "--grads", "g", "--weights", "w", "--out", "out", f"{flag}={value}"], files,
                       must_refuse=value not in ("0", "2", "1e-320"))
    for value in ("9223372036854775807", "9223372036854775680", "4294967297", "2147483648", "0", "-1", "1", "7", "1e3"):
        for state in ("e4m3+x", "hif8", "de8", "f32", "bf16"):
            yield Case(f"optim_step/group_{value}_{state}",
                       ["OCTET", "optim-step", "--grads", "g", "--weights", "w", "--out", "out", f"--group={value}", "--state-m", state,
                        "--state-v", state], files)
    for i in range(40):
        pick = [chooser.choice(list(files)) for _ in range(2)]
        yield Case(f"optim_step/files_{i}",
                   ["OCTET", "optim-step", "--grads", pick[0], "--weights", pick[1], "--out", "out", "--steps",
                    chooser.choice(["1", "2", "0", "-1", "1000000000000", "9223372036854775807"]), "--master",
                    chooser.choice(["fp32", "bf16_remainder", "bf16_sr", "x"])], files)
    for name in ("/dev/zero", "/dev/null", ".", "/proc/self/mem", "missing"):
        for role in ("grads", "weights"):
            other = "weights" if role == "grads" else "grads"
            yield Case(f"optim_step/{role}_{name}",
                       ["OCTET", "optim-step", f"--{role}", name, f"--{other}", "w", "--out", "out"], files)


LINE = {"step": 1, "loss": 2.0, "lr": 1e-3, "tokens_per_s": 10.0, "mem_bytes": 1, "grad_norm": 1.0, "val_loss": 2.5}


def report(shop):
    chooser = shop.random("report")
    extremes = [0, -1, 5e-324, 1.7e308, -1.7e308, 1e300, 2**53, 2**53 + 1, 2**63 - 1, 2**64, 8999999999999999, 2.5,
                2.5000000000000004, None, "nan", [], {}, True, float("nan"), float("inf"), 3.4e38, 1e-45]
    texts = {}
    for key in LINE:
        for value in extremes:
            lines = [LINE, LINE | {"step": 2, key: value}, LINE | {"step": 3}]
            if chooser.random() < 0.5:
                lines = [LINE | {key: value}]
            texts[f"{key}={value}"] = "\n".join(map(json.dumps, lines)).encode()
    good = "\n".join(json.dumps(LINE | {"step": i}) for i in range(1, 30))
    for i in range(40):
        texts[f"random_{i}"] = (mutated(chooser, good.encode()) if i % 2 else
                                mutated_text(chooser, good, EXTREMES).encode())
    texts |= {"deep": b"[" * LEVELS, "nuls": bytes(100_000), "long": b'{"step":1,' + b" " * 5_000_000, "empty": b"",
              "same": (json.dumps(LINE) + "\n").encode() * 20_000}
    for name, data in texts.items():
        yield Case(f"report/{name}", ["OCTET", "report", "r", "--out", "page.html"], {"r/metrics.jsonl": data, "text": b"mine"},
                   afterwards=whole_page)
    for name in ("config.yaml", "telemetry.jsonl", "ckpt"):
        for what, data in (("nuls", bytes(99)), ("deep", b"[" * LEVELS), ("escape", b"\x1b]0;x\x07: 1"), ("empty", b"")):
            yield Case(f"report/{name}_{what}", ["OCTET", "report", "r", "--out", "page.html"],
                       {"r/metrics.jsonl": good.encode(), f"r/{name}": data})
    yield Case("report/names", ["OCTET", "report", "<script>\x1b[31m"], {"<script>\x1b[31m/metrics.jsonl": good.encode()})


def whole_page(folder, code, _):
    path = os.path.join(folder, "page.html")
    if code != 0:
        return "a page that is not whole" if os.path.exists(path) else None
    with open(path, encoding="utf-8") as file:
        page = file.read()
    return "a chart with numbers that are none" if any(bad in page for bad in ('="nan', ",nan", "-nan", '="inf', ",inf")) else None


def out_targets(shop):
    """What lies where a result is to be written: replaced on purpose or left alone, and nothing beside it is touched.

    Device nodes are made in the case's folder: a program that replaces them must not meet the machine's own.
    """
    good = "\n".join(json.dumps(LINE | {"step": i}) for i in range(1, 9)).encode()
    base = {"r/metrics.jsonl": good, "w": shop.floats, "g": shop.floats, "victim": b"the user's own"}
    commands = {"report": ["OCTET", "report", "r", "--out"],
                "optim_step": ["OCTET", "optim-step", "--grads", "g", "--weights", "w", "--out"]}

    def node(folder):
        os.mknod(os.path.join(folder, "out"), stat.S_IFCHR | 0o666, os.makedev(1, 3))

    def full(folder):
        os.mknod(os.path.join(folder, "out"), stat.S_IFCHR | 0o666, os.makedev(1, 7))

    def linked(name, target):
        return lambda folder: os.symlink(target, os.path.join(folder, name))

    def linked_node(folder):
        os.mknod(os.path.join(folder, "null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.symlink("null", os.path.join(folder, "out"))

    def held(name):
        def make(folder):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"the user's own")
        return make

    def cyclic(folder):
        os.symlink("out", os.path.join(folder, "out"))

    places = {"pipe": lambda folder: os.mkfifo(os.path.join(folder, "out")), "folder": lambda f: os.mkdir(os.path.join(f, "out")),
              "folder_tmp": lambda f: os.mkdir(os.path.join(f, "out.tmp")), "file_tmp": held("out.tmp"),
              "link_tmp": linked("out.tmp", "victim"), "lost_link": linked("out", "/nowhere/at/all"), "cycle": cyclic,
              "link_to_folder": linked("out", "r")}
    if os.geteuid() == 0:
        places |= {"null": node, "full": full, "link_to_null": linked_node}
    for command, words in commands.items():
        for name, make in places.items():
            yield Case(f"out/{command}_{name}", [*words, "out"], base, make=make, limit=20)
        for path in ("/proc/version", "/proc/self/mem", "/", ".", "", "r", "none/out", "w/out", "a" * 300,
                     "\x1b[31m/x", "/sys/kernel/x"):
            yield Case(f"out/{command}_to_{path[:14]}", [*words, path], base)
    for name in ("run", "run/ckpt", "run/metrics.jsonl", "run/config.yaml", "run/ckpt/step-000002.tmp"):
        for kind in ("file", "pipe", "link", "lost_link"):
            def make(folder, name=name, kind=kind):
                path = os.path.join(folder, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                if kind == "file":
                    held(name)(folder)
                elif kind == "pipe":
                    os.mkfifo(path)
                else:
                    os.symlink(os.path.join(folder, "victim") if kind == "link" else "/nowhere/at/all", path)
            yield Case(f"out/train_{name}_{kind}", ["OCTET", "train", "t.yaml", "--quiet"],
                       shop.base() | {"victim": b"the user's own"}, make=make)


CLASSES = {"formats": formats, "optim_step": optim_step, "report": report, "out": out_targets}
