"""What runs share: token caches beside them, the port where ranks meet, folders that hold a user's files."""
import os
import shutil
import signal
import socket
import struct
import time

from attack_cases.case import EXTREMES, Case, after, mutated
from attack_cases.models import limited, model_files
from attack_cases.runs import xxh64

SHORT = b"scale amax group\nmoment step\n" * 40


def put_entry(path, kind, target):
    """A folder, a pipe, a link to the target, or (lost_link) one to nowhere."""
    if kind == "folder":
        os.mkdir(path)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        os.symlink(target if kind == "link" else "/nowhere/at/all", path)


def token_cache(shop):
    """Forged caches: what anyone can compute is right, the rest is not."""
    chooser = shop.random("token_cache")
    files = model_files(shop) | shop.base() | {"text.txt": SHORT}
    words = ["train", "t.yaml", "--quiet", "--set", "data.tokenizer=m", "--set", "model.vocab=320", "--set", "train.steps=1"]
    if not hasattr(shop, "cache"):
        shop.put("text.txt", SHORT)
        shop.call(*words, "--set", "out=cached/a")
        folder = os.path.join(shop.folder, "cached", "token-cache")
        shop.cache = [(name, shop.get("cached/token-cache/" + name)) for name in os.listdir(folder)]
        shop.put("text.txt", shop.text)
    name, whole = next((name, data) for name, data in shop.cache if name.endswith(".tokens"))

    def forged(change):
        trailer = list(struct.unpack("<8Q", whole[-64:]))
        n_bytes = trailer[2] * trailer[3]
        tokens, starts, trailer = change(whole[:n_bytes], whole[n_bytes:-64], trailer)
        trailer[6] = xxh64(b"text.txt" + tokens + starts)
        trailer[7] = xxh64(struct.pack("<7Q", *trailer[:7]))
        return tokens + starts + struct.pack("<8Q", *trailer)

    def with_starts(values):
        def change(tokens, _, trailer):
            return tokens, struct.pack(f"<{len(values)}q", *values), trailer[:4] + [len(values)] + trailer[5:]
        return change

    def with_field(i, value):
        return lambda tokens, starts, trailer: (tokens, starts, trailer[:i] + [value] + trailer[i + 1:])

    def with_tokens(pattern):
        return lambda tokens, starts, trailer: ((pattern * len(tokens))[:len(tokens)], starts, trailer)

    n_tokens = struct.unpack("<8Q", whole[-64:])[3]
    variants = {"whole": whole, "empty": b"", "cut": whole[:-9], "magic": whole[:-64] + b"OCTCTKN2" + whole[-56:]}
    for what, values in (("far_below", [1, 2, -10**9]), ("far_above", [0, 10**9]), ("descending", [0, 9, 5]), ("twice", [0, 5, 5]), ("none", []), ("late", [7]),
                         ("at_end", [0, n_tokens]), ("behind_end", [0, n_tokens + 1]), ("min", [-2**63]), ("max", [0, 2**63 - 1]), ("many", [0] * 5000)):
        variants[f"starts_{what}"] = forged(with_starts(values))
    for i, field in enumerate(("magic", "key", "width", "tokens", "documents", "texts")):
        for value in (0, 1, 2, 3, 4, 8, 2**31, 2**32, 2**61, 2**63, 2**64 - 1):
            variants[f"{field}={value}"] = forged(with_field(i, value))
    for pattern in (b"\xff", b"\0", b"\x40\x01", b"\x3f\x01", b"\0\x80"):
        variants[f"ids_{pattern.hex()}"] = forged(with_tokens(pattern))
    for i in range(40):
        variants[f"random_{i}"] = mutated(chooser, whole)
    for what, data in variants.items():
        for boundaries in ("isolate", "mask_labels"):
            yield Case(f"token_cache/{what}_{boundaries}",
                       limited(*words, "--set", "out=cached/b", "--set", f"data.document_boundaries={boundaries}"),
                       files | {"cached/token-cache/" + name: data}, changes_always=(r"cached/token-cache/.*",))
    for kind in ("folder", "link", "lost_link", "pipe"):
        def make(folder, kind=kind):
            path = os.path.join(folder, "cached", "token-cache", name)
            os.makedirs(os.path.dirname(path))
            put_entry(path, kind, "../../text.txt")
        yield Case(f"token_cache/{kind}", limited(*words, "--set", "out=cached/b"), files, make=make)


def ranks(shop):
    chooser = shop.random("ranks")
    names = (("RANK", "WORLD_SIZE", "LOCAL_RANK"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"))
    numbers = ["", "0", "1", "-1", "2", "3", "x", "1.5", "0x1", " 1", "4294967296", "18446744073709551616", "\x1b[31m"]
    environment = {key: value for key, value in os.environ.items() if "RANK" not in key and "WORLD_SIZE" not in key}
    environment |= {"OCTET_JOIN_SECONDS": "1", "MASTER_ADDR": "127.0.0.1"}
    port = 21_000
    train = ["train", "t.yaml", "--quiet"]
    for rank_name, size_name, local_name in names:
        for _ in range(45):
            port += 1
            variables = {rank_name: chooser.choice(numbers), size_name: chooser.choice(numbers), "MASTER_PORT": str(port)}
            if chooser.random() < 0.3:
                variables[local_name] = chooser.choice(numbers)
            what = ",".join(ascii(value)[1:-1] for value in variables.values())
            yield Case(f"ranks/{rank_name}_{what}", limited(*train), shop.base(), environment=environment | variables)
    for variable in ("MASTER_PORT", "MASTER_ADDR", "OCTET_JOIN_SECONDS", "OCTET_SILENCE_SECONDS"):
        for value in (*numbers, "65536", "nowhere.invalid", "::1", "256.1.1.1", "nan", "1e9"):
            if variable == "OCTET_JOIN_SECONDS" and value in ("2", "3", "4294967296", "1e9", "", "65536"):
                continue  # it is waited for so long
            port += 1
            yield Case(f"ranks/{variable}={ascii(value)[1:-1]}", limited(*train), shop.base(),
                       environment=environment | {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": str(port), variable: value}, limit=60)
    for value in (*EXTREMES, "2", "3", "64"):
        yield Case(f"ranks/--ranks={ascii(value)[1:-1]}", limited(*train, f"--ranks={value}", "--set", "train.steps=1"), shop.base(), limit=60)
    yield from strangers(shop, environment)


def strangers(shop, environment):
    """Two ranks, and others at their port."""
    hello = b"octet-r\n" + struct.pack("<IIiiQ", 1, 0, 1, 2, 0)
    words = {"silent": b"", "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "magic": hello[:8], "part": hello[:20], "nuls": bytes(500), "large": b"\xff" * 500_000,
             "version": hello[:8] + struct.pack("<IIiiQ", 9, 0, 1, 2, 0), "link": hello[:8] + struct.pack("<IIiiQ", 1, 7, 1, 2, 0),
             "token": hello[:8] + struct.pack("<IIiiQ", 1, 0, 1, 2, 99), "mesh": hello[:8] + struct.pack("<IIiiQ", 1, 1, 1, 2, 0)}
    script = 'RANK=0 "$0" train t.yaml --quiet & sleep 1; RANK=1 "$0" train t.yaml --quiet 2>/dev/null; wait $!'
    port = 22_000
    for what, data in words.items():
        for n in (1, 5):
            port += 1

            def during(child, _, data=data, n=n, port=port):
                began, held = time.time(), []
                while len(held) < n and time.time() - began < 5 and child.poll() is None:
                    try:
                        held.append(socket.create_connection(("127.0.0.1", port), timeout=1))
                        held[-1].sendall(data)
                    except OSError:
                        time.sleep(0.02)
                child.poll() is None and time.sleep(5)

            # A wrong hello of the right magic may end the start; strangers may not.
            yield Case(f"ranks/stranger_{what}_{n}", ["bash", "-c", script, "OCTET"], shop.base(), during=during, limit=60, is_slow=True,
                       environment=environment | {"WORLD_SIZE": "2", "MASTER_PORT": str(port), "OCTET_JOIN_SECONDS": "8"},
                       afterwards=None if what in ("version", "link", "mesh") else joined)


def joined(_, code, __):
    return None if code == 0 else "strangers kept the ranks from each other"


def outputs(shop):
    """Folders for results that hold what is a user's."""
    base = shop.base() | {"victim": b"the user's own"}
    tokenize = ["tokenize", "--tokenizer", "bytes", "text.txt", "--quiet", "--out", "o"]
    study = ["study", "formats", "--samples", "1000", "--quiet", "--out", "o"]
    report = ["study", "report", "s", "--quiet", "--out", "o"]
    shop.call("study", "formats", "--samples", "1000", "--quiet", "--out", "s")
    old = {"s/" + name: shop.get("s/" + name) for name in os.listdir(os.path.join(shop.folder, "s"))}
    names = {"tokenize": (tokenize, ["shard-00000.npy", "shard-00000.ends", "shard-00003.npy", "tokenize.json"]),
             "study": (study, ["study.json", "formats.csv", "snr.csv", "snr.svg"]), "report": (report, ["index.html"]),
             "overwrite": (["train", "t.yaml", "--quiet", "--overwrite", "--set", "out=o"],
                           ["metrics.jsonl", "telemetry.jsonl", "config.json", "config.yaml", "algorithms.json", ".lock", "ckpt", "export"])}
    for command, (words, targets) in names.items():
        for target in targets:
            for kind in ("file", "link", "lost_link", "folder", "pipe"):
                if command == "overwrite" and (target, kind) in (("algorithms.json", "file"), (".lock", "file"), ("ckpt", "folder"), ("export", "folder")):
                    continue  # of a run by their names, or kept

                def make(folder, target=target, kind=kind, command=command):
                    if command == "overwrite":
                        shutil.copytree(os.path.join(shop.folder, "run"), os.path.join(folder, "o"))
                    path = os.path.join(folder, "o", target)
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    if os.path.isdir(path):
                        shutil.rmtree(path)
                    elif os.path.lexists(path):
                        os.unlink(path)
                    if kind == "file":
                        with open(path, "wb") as file:
                            file.write(b"the user's own\n")
                    else:
                        put_entry(path, kind, "../victim")
                # Of a run the other files give way; the one in question and what it leads to stay.
                own = tuple(f"o/{name}" for name in (r"ckpt/.*", r"ckpt", r"metrics\.jsonl", r"telemetry\.jsonl", r"config\.(json|yaml)", r"\.lock")
                            if name.replace("\\", "") != target) if command == "overwrite" else ()
                yield Case(f"outputs/{command}_{target}_{kind}", limited(*words), base | old, make=make, changes=own,
                           changes_always=(r"o/\.lock",))
        for folder in ("/", "..", ".", "run", "m", "run/ckpt", "text.txt", "\x1b[31m", "o/" * 40):
            if (command, folder) == ("overwrite", "run"):
                continue
            where = [f"out={folder}"] if command == "overwrite" else [folder]
            yield Case(f"outputs/{command}_into_{ascii(folder)[1:9]}", limited(*words[:-1], *where),
                       {"w/" + name: data for name, data in (base | old).items()} | base | old | model_files(shop),
                       make=lambda folder: shop.with_run(folder), must_refuse=folder in ("/", "..", "text.txt"))


def removed(shop):
    """The run's folder goes while it trains."""
    def gone(folder):
        shutil.rmtree(os.path.join(folder, "run"), ignore_errors=True)

    def moved(folder):
        os.rename(os.path.join(folder, "run"), os.path.join(folder, "away"))

    def other(folder):
        moved(folder)
        os.mkdir(os.path.join(folder, "run"))
        with open(os.path.join(folder, "run", ".lock"), "w", encoding="utf-8") as file:
            file.write("process 1 on host other\n")

    for name, act in (("gone", gone), ("moved", moved), ("other", other)):
        for save_every in (0, 1, 50):
            def during(child, folder, act=act):
                began = time.time()
                while not os.path.exists(os.path.join(folder, "run", "metrics.jsonl")) and time.time() - began < 10:
                    time.sleep(0.02)
                time.sleep(0.3)
                act(folder)
                after(15, signal.SIGTERM)(child, folder)
            yield Case(f"removed/{name}_{save_every}",
                       limited("train", "t.yaml", "--quiet", "--set", "train.steps=100000000", "--set", f"train.save_every={save_every}"),
                       shop.base(), during=during, must_refuse=True, limit=40, is_slow=True)


CLASSES = {"token_cache": token_cache, "ranks": ranks, "outputs": outputs, "removed": removed}
