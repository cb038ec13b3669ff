#!/usr/bin/env python3
"""Every key of GGUF files at other values: what llama.cpp computes then, Octet must compute too, refuse, or warn of.
`./dev parity --flipped-gguf` runs it.

    flipped_gguf.py PROGRAM [llama|qwen2|qwen3|reading|writing]...    lists what neither agrees nor is told, and fails

Keys are those that llama.cpp's library names, and the file's own. A file that Octet takes is computed by llama.cpp, as xllamacpp packs
it, beside the logits of `octet convert --verify`, and texts have the same ids. Then the folder that Octet makes of the file gets other
values in its config.json, tokenizer.json and tokenizer_config.json, and what it writes of it as GGUF is held against llama.cpp so, too.
"""
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import xllamacpp
from octet import check_folder

import flipped_keys
import neutral_gguf
from gguf_proof import serve, tokenize

TEXTS = ["a quick brown fox", " aa ab b", "ab  ab", "Ab<|eot|>ab 12", "<s>ab </s> <pad>b"]
ARCHITECTURES = ("llama", "qwen2", "qwen3")
FREE = [True, False, 0, 1, 2, 7, 0.0, 0.5, 1.0, 2.5, "none", "linear", "yarn", "longrope", "gelu", "llama", "default", [1, 0], [2, 4], [0.5, 0.5]]


def named_keys(architecture):
    library = next(pathlib.Path(xllamacpp.__file__).parent.glob("*.so")).read_bytes()
    names = set(re.findall(rb"(?<![\w.%])(?:%s|general|tokenizer|split|adapter)\.[a-z0-9_.]+(?=\0)", library))
    return sorted(name.decode().replace("%s", architecture) for name in names if not name.endswith((b".weight", b".bias")))


def others_of(value):
    if isinstance(value, str):
        return [other for other in FREE if isinstance(other, str)]
    if isinstance(value, list):
        return [value[::-1], value[:-1], value[1:] + value[:1]]
    return [not value] if isinstance(value, bool) else [value + 1, 2 * value, value // 2 if isinstance(value, int) else 0.7 * value, 0 * value]


def program(path, *arguments, **options):
    return subprocess.run([path, *map(str, arguments)], capture_output=True, text=True, check=False, **options)


def last_of(key):
    return re.split(r"[./]", key)[-1]


def fault_of(*arguments):
    """How llama.cpp's results differ from Octet's, which stand beside the file; "" where they do not, or it refuses the file or dies."""
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        try:
            return pool.submit(compared, *arguments).result()
        except concurrent.futures.process.BrokenProcessPool:
            return ""


def compared(octet, gguf, tokenizer):
    verdict = check_folder.llama_cpp(gguf)
    if verdict.result == "fail":
        words = " ".join(verdict.words)
        return f"logits: {words}" if "difference" in words else ""
    server = serve(gguf)
    for text in TEXTS:
        ours = program(octet, "tokenize", "--tokenizer", tokenizer, "--ids", input=text).stdout.split()
        theirs = [str(x) for x in tokenize(server, text, add_special=True, parse_special=True)]
        if ours != theirs:
            return f"ids of {text!r}: {ours} beside llama.cpp's {theirs}"
    return ""


def reading(octet, architecture, scratch):
    """Of each change of a file: key, value, fault."""
    own, gguf, folder = neutral_gguf.keys_of(architecture), scratch / "m.gguf", scratch / "m"
    digest = gguf.with_name(f"{gguf.name}.{check_folder.DIGEST}")
    for key in [None, *sorted({*named_keys(architecture), *own} - {"general.architecture"})]:
        for value in [None, *others_of(own[key])] if key in own else FREE if key else [None]:
            try:
                neutral_gguf.write(gguf, {key: value} if key else {}, architecture)
            except Exception:  # noqa: BLE001 - a value that the writer has no type of
                continue
            shutil.rmtree(folder, ignore_errors=True)
            got = program(octet, "convert", gguf, folder, "--dtype", "f32", "--verify", "--quiet")
            said = got.stdout + got.stderr
            if "is not known: it may change" in said:
                yield key, value, "" if last_of(key) in said else f"refused without its name: {said.strip()}"
                break  # whatever its value
            if got.returncode != 0:  # a shape's key: by the tensor
                is_named = any(word in said for word in (last_of(key or "-"), "tokens", "tokenizer.ggml", "blk."))
                yield key, value, "" if is_named else f"refused without its name: {said.strip()}"
            elif last_of(key or "-") not in said:
                shutil.move(folder / check_folder.DIGEST, digest)
                yield key, value, fault_of(octet, gguf, gguf)


def leaves(node, path=()):
    if isinstance(node, (dict, list)):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node[:3]):
            yield from leaves(value, (*path, key))
    yield path, node


def changed(content, path, value):
    """A list's elements, too, beside flipped_keys.changed()."""
    content = json.loads(json.dumps(content))
    at = content
    for key in path[:-1]:
        at = at[key]
    if value is not flipped_keys.ABSENT:
        at[path[-1]] = value
    elif isinstance(at, list) or path[-1] in at:
        del at[path[-1]]
    return content


def changes_of(name, content):
    """Paths and values of a JSON file."""
    if name == "config.json":
        yield from flipped_keys.changes_of(content)
        return
    for path, value in leaves(content):
        if path and path[-1] not in ("version", "truncation", "padding") and "vocab" not in path:
            others = [not value] if isinstance(value, bool) else [0.5, True] if value is None else []
            if isinstance(value, str):
                others = [other for other in ("always", "first", "never", "Removed", "MergedWithNext", "<s>", "Ġ") if other != value]
            for other in [*others, flipped_keys.ABSENT]:
                yield list(path), other
    if name == "tokenizer_config.json":
        for key in ("add_bos_token", "add_eos_token", "add_prefix_space", "legacy", "do_lower_case", "clean_up_tokenization_spaces"):
            for value in (True, False):
                yield [key], value


def writing(octet, architecture, scratch):
    neutral_gguf.write(scratch / "base.gguf", {}, architecture)
    program(octet, "convert", scratch / "base.gguf", scratch / "base", "--dtype", "f32", "--quiet").check_returncode()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        path, gguf = scratch / "base" / name, scratch / "w.gguf"
        text = path.read_text()
        for keys, value in changes_of(name, json.loads(text)):
            other = changed(json.loads(text), keys, value)
            if other == json.loads(text):
                continue
            path.write_text(json.dumps(other))
            gguf.unlink(missing_ok=True)
            got = program(octet, "convert", scratch / "base", gguf, "--dtype", "f32", "--verify", "--quiet")
            said, key = got.stdout + got.stderr, "/".join(map(str, [name, *keys]))
            if got.returncode == 0 and str(keys[-1]) not in said:
                yield key, "absent" if value is flipped_keys.ABSENT else value, fault_of(octet, gguf, scratch / "base")
            else:
                yield key, value, ""
        path.write_text(text)


def main():
    octet, *names = sys.argv[1:]
    os.environ["GGML_NO_BACKTRACE"] = "1"  # of a process that llama.cpp ends
    found = []
    sweeps = (reading, writing)
    for architecture in [name for name in ARCHITECTURES if name in names] or ARCHITECTURES:
        for sweep in [one for one in sweeps if one.__name__ in names] or sweeps:
            with tempfile.TemporaryDirectory() as scratch:
                n, faults = 0, []
                for key, value, fault in sweep(octet, architecture, pathlib.Path(scratch)):
                    n += 1
                    faults += [f"{architecture}, {sweep.__name__}: {key} {str(value)[:60]}: {fault}"] if fault else []
            print(f"{architecture}, {sweep.__name__}: {n} changes, {len(faults)} silent", *faults, sep="\n", flush=True)
            found += faults
    if found:
        sys.exit(f"flipped_gguf: {len(found)} changes are computed otherwise, and not told")


if __name__ == "__main__":
    main()
