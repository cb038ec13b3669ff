"""Text, packed text, folders of it, and tokenizer files."""
import lzma
import os
import signal
import struct

from attack_cases.case import UNPACKED, Case, after, mutated


def training(name, files, train, **more):
    return Case(name, ["OCTET", "train", "t.yaml", "--set", "train.steps=1", "--set", f"data.train=[{train}]", "--quiet"],
                files, **more)


def texts(shop):
    chooser = shop.random("texts")
    packed = lzma.compress(shop.text)
    files = {"a.txt": {"empty": b"", "one": b"a", "two": b"ab", "nuls": bytes(10_000), "no_utf8": bytes(range(256)) * 40,
                       "one_line": b"a" * 100_000, "lines": b"\n" * 10_000, "cr": b"a\r" * 5000,
                       "escape": b"\x1b[31m" * 1000, "bom": b"\xff\xfe" + shop.text},
             "a.txt.xz": {"whole": packed, "empty": b"", "text": shop.text, "much": lzma.compress(bytes(UNPACKED)),
                          "twice": packed + packed, "tail": packed + b"tail", "inner": lzma.compress(packed),
                          "alone": lzma.compress(shop.text, format=lzma.FORMAT_ALONE)}}
    for n in (1, 6, 12, 30, len(packed) // 2, len(packed) - 1):
        files["a.txt.xz"][f"cut_{n}"] = packed[:n]
    for i in range(40):
        files["a.txt.xz"][f"random_{i}"] = mutated(chooser, packed)
    for name, group in files.items():
        for what, data in group.items():
            yield training(f"texts/{name}_{what}", shop.base() | {name: data}, name)
    yield from folders(shop)


def folders(shop):
    def linked(folder):
        os.symlink("..", os.path.join(folder, "d", "up"))
        os.symlink("/etc/shadow", os.path.join(folder, "d", "secret.txt"))
        os.symlink("nowhere", os.path.join(folder, "d", "lost.txt"))

    def piped(folder):
        os.mkfifo(os.path.join(folder, "d", "pipe.txt"))

    def deep(folder):
        path = os.path.join(folder, "d")
        for _ in range(60):
            path = os.path.join(path, "d")
            os.mkdir(path)

    one = {"d/a.txt": shop.text}
    for name, files, make in (("links", one, linked), ("pipe", one, piped), ("deep", one, deep),
                              ("hidden", {"d/.a.txt": shop.text}, None), ("empty", {"d/.keep": b""}, None),
                              ("binary", {"d/a.out": b"\x7fELF" + bytes(1000)}, None),
                              ("damaged", one | {"d/b.txt.xz": b"\xfd7zXZ\x00damaged"}, None),
                              ("mixed", one | {"d/b.npy": b"\x93NUMPY"}, None),
                              ("names", {"d/\x1b]0;x\x07.txt": b"a", "d/a\nb.txt": shop.text}, None)):
        yield training(f"texts/folder_{name}", shop.base() | files, "d", make=make)
    for path in ("/dev/null", "/dev/zero", "/dev/full", "/proc/cpuinfo", "/proc/self/mem", "/proc/kmsg", "", ".", "t.yaml/x",
                 "a" * 300, "a/" * 3000):
        yield training(f"texts/path_{path[:20]}", shop.base(), path, limit=60)
    # All that the machine holds is much work; it ends when it is asked to.
    yield training("texts/path_/", shop.base(), "/", limit=20, during=after(2, signal.SIGTERM), also_fine=(143,))


def piece(score, text, length=None):
    return struct.pack("<fi", score, len(text) if length is None else length) + text


def tokenizer(shop):
    chooser = shop.random("tokenizer")
    pieces = [b"<unk>", b"\n<s>\n", b"\n</s>\n"] + [b"<0x%02X>" % i for i in range(253)]
    whole = struct.pack("<i", 27) + b"".join(piece(-i, text) for i, text in enumerate(pieces))
    files = {"whole": whole, "empty": b"", "short": b"\1\0", "longest_negative": struct.pack("<i", -1) + whole[4:],
             "longest_large": struct.pack("<i", 2**31 - 1) + whole[4:], "many": struct.pack("<i", 1) + piece(0, b"a") * 3000,
             "nan": struct.pack("<i", 27) + piece(float("nan"), b"a") * 256, "cut": whole[:1000],
             "inf": struct.pack("<i", 27) + piece(float("-inf"), b"a") * 256, "tail": whole + b"tail"}
    for length in (-1, 0, 28, 2**31 - 1, -2**31):
        files[f"length_{length}"] = struct.pack("<i", 27) + piece(0, b"abc", length) + whole[4:]
    for i in range(50):
        files[f"random_{i}"] = mutated(chooser, whole)
    for name, data in files.items():
        yield Case(f"tokenizer/{name}", ["OCTET", "train", "t.yaml", "--set", "train.steps=1", "--set",
                                         "data.tokenizer=t.bin", "--quiet"], shop.base() | {"t.bin": data})
    for name in ("none", "bpe", "", "t.yaml", "/dev/zero", "/proc/self/mem", ".", "\x1b[31m"):
        yield Case(f"tokenizer/named_{ascii(name)[1:-1]}",
                   ["OCTET", "train", "t.yaml", "--set", "train.steps=1", "--set", f"data.tokenizer={name}"], shop.base())


CLASSES = {"texts": texts, "tokenizer": tokenizer}
