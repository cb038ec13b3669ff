#!/usr/bin/env python3
"""Octet's tokenizers against the `tokenizers` package: the same ids, and the speed of both in one run.

    tools/tokenizer_diff.py DATA [NAME...] [--octet build/octet] [--bytes 20000000] [--speed-bytes 50000000]
                            [--document-bytes 100000] [--characters] [--json OUT.json]

DATA is the folder with tokenizers/ and text/. Names: gpt2 llama2 llama3 qwen olmo1 dolma2, or the path of any tokenizer.json.
Without the package an environment is made in build/venv. Two things are compared:
  ids         of 20 MB of English in documents of about 100 KB, and with --characters of every code point in a few contexts
  megabytes a second of processor time, one thread, encoding alone; and of wall time with all cores (0 turns speed off)
"""

import argparse
import base64
import json
import lzma
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = {"gpt2": "gpt2", "llama2": "llama2/tokenizer.model", "llama3": "llama3/tokenizer.model", "qwen": "qwen/qwen.tiktoken",
         "olmo1": "olmo/allenai_gpt-neox-olmo-dolma-v1_5.json", "dolma2": "olmo/allenai_dolma2.json"}
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")


def in_environment():
    """Runs this tool again where the package is installed."""
    try:
        import tokenizers  # noqa: F401
        return
    except ImportError:
        pass
    folder = ROOT / "build/venv"
    python = folder / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "tokenizers", "sentencepiece"], check=True)
    os.execv(python, [str(python), *sys.argv])


def character_of_byte():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, after = {byte: chr(byte) for byte in printable}, 0x100
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(after)
            after += 1
    return table


def merges_of(ids, order):
    """Every cut of a token into two others, in the order in which tokens are merged."""
    merges = []
    for token in sorted(ids, key=order):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ids and token[i:] in ids]
        merges += sorted(cuts, key=lambda cut: (ids[cut[0]], ids[cut[1]]))
    return merges


def of_ranks(path, pattern, normalizer=None):
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    table = character_of_byte()
    ids = {}
    for line in path.read_bytes().splitlines():
        token, rank = line.split()
        ids["".join(table[byte] for byte in base64.b64decode(token))] = int(rank)
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges_of(ids, ids.get), ignore_merges=True))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return tokenizer


def fields(data):
    """Of a Protocol Buffers message: (number, value)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
    while at < len(data):
        tag = varint()
        wire = tag & 7
        if wire == 0:
            yield tag >> 3, varint()
        else:
            n = varint() if wire == 2 else {1: 8, 5: 4}[wire]
            yield tag >> 3, data[at:at + n]
            at += n


def of_sentencepiece(path):
    from tokenizers import Tokenizer, models, normalizers
    pieces = [dict(fields(value)) for number, value in fields(path.read_bytes()) if number == 1]
    texts = [piece[1].decode() for piece in pieces]
    scores = [struct.unpack("<f", piece[2])[0] if 2 in piece else 0.0 for piece in pieces]
    all_ids = {text: i for i, text in enumerate(texts)}
    normal = {text: i for text, i in all_ids.items() if pieces[i].get(3, 1) == 1}
    tokenizer = Tokenizer(models.BPE(vocab=all_ids, merges=merges_of(normal, lambda text: -scores[normal[text]]),
                                     unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer


def of_gpt2(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers
    vocab = json.loads((folder / "encoder.json").read_text())
    merges = [tuple(line.split(" ")) for line in (folder / "vocab.bpe").read_text().split("\n")[1:] if line]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def path_of(data, name):
    return data / "tokenizers" / FILES[name] if name in FILES else Path(name)


def package_tokenizer(data, name):
    from tokenizers import Tokenizer, normalizers
    path = path_of(data, name)
    if name == "gpt2":
        return of_gpt2(path)
    if name == "llama2":
        return of_sentencepiece(path)
    if name == "llama3":
        return of_ranks(path, CL100K)
    if name == "qwen":
        return of_ranks(path, CL100K.replace("{1,3}", ""), normalizers.NFC())
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def english(data, n_bytes, document_bytes):
    """Documents of about so many bytes."""
    text = b""
    for path in ("wiki_en/wiki_train_00.txt.xz", "wiki_en/wiki_train_01.txt", "books/books_val_00.txt",
                 "books/books_train_00.txt.xz"):
        if len(text) < n_bytes:
            raw = (data / "text" / path).read_bytes()
            text += lzma.decompress(raw) if path.endswith(".xz") else raw
    text = text[:n_bytes].decode("utf-8", "ignore")
    documents, at = [], 0
    while at < len(text):
        end = text.find("\n", at + document_bytes)
        end = len(text) if end < 0 else end + 1
        documents.append(text[at:end])
        at = end
    return documents


def characters():
    """Every code point but NUL and the surrogates, 16 a document, among letters, digits, spaces and symbols."""
    codes = [code for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    return ["".join(f"a{c}b {c}1{c}{c} .{c}\n{c} {c}" for c in map(chr, codes[i:i + 16])) for i in range(0, len(codes), 16)]


def octet_run(octet, path, documents, threads):
    """Ids of each document, and the report of the run."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "text.jsonl"
        source.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
        out = Path(folder) / "shards"
        report = json.loads(subprocess.run(
            [octet, "tokenize", "--tokenizer", path, "--no-special", "--out", out, "--threads", str(threads), "--json",
             "--quiet", source], check=True, capture_output=True, text=True).stdout)
        if report["dropped"]:
            raise SystemExit(f"documents were dropped: {report['dropped']}")
        ids = []
        for ends in sorted(out.glob("*.ends")):
            raw = ends.with_suffix(".npy").read_bytes()
            n_header = 10 + struct.unpack("<H", raw[8:10])[0]
            code = "H" if b"<u2" in raw[:n_header] else "I"
            tokens = memoryview(raw[n_header:]).cast(code)
            begin = 0
            for end in memoryview(ends.read_bytes()).cast("Q"):
                ids.append(list(tokens[begin:end]))
                begin = end
        return ids, report


def compare_ids(octet, path, package, documents, what):
    ours, _ = octet_run(octet, path, documents, 0)
    theirs = package.encode_batch(documents, add_special_tokens=False)
    wrong = [i for i, encoded in enumerate(theirs) if encoded.ids != ours[i]]
    return {"documents": len(documents), "bytes": sum(len(text.encode()) for text in documents), "differ": len(wrong),
            "tokens": sum(map(len, ours)), "first": documents[wrong[0]][:200] if wrong else None, "what": what}


def characters_that_differ(octet, path, package, documents):
    """One code point a document, of the documents that differ."""
    ours, _ = octet_run(octet, path, documents, 0)
    theirs = package.encode_batch(documents, add_special_tokens=False)
    wrong = [text for i, text in enumerate(documents) if theirs[i].ids != ours[i]]
    codes = sorted({ord(c) for text in wrong for c in text})
    single = [f"a{chr(c)}b {chr(c)}1{chr(c)}{chr(c)} .{chr(c)}\n{chr(c)} {chr(c)}" for c in codes]
    if not single:
        return []
    ours, _ = octet_run(octet, path, single, 0)
    theirs = package.encode_batch(single, add_special_tokens=False)
    return [f"U+{codes[i]:04X}" for i in range(len(single)) if theirs[i].ids != ours[i]]


def speed(octet, path, package, documents):
    """Processor seconds of one thread, where reading and writing files and loading are not counted for either; then wall
    seconds with all cores."""
    n_bytes = sum(len(text.encode()) for text in documents)
    began = time.process_time()
    for text in documents:
        package.encode(text, add_special_tokens=False)
    theirs = time.process_time() - began
    began = time.perf_counter()
    package.encode_batch(documents, add_special_tokens=False)
    theirs_all = time.perf_counter() - began
    report = octet_run(octet, path, documents, 1)[1]
    report_all = octet_run(octet, path, documents, 0)[1]
    row = {"bytes": n_bytes, "package": n_bytes / theirs / 1e6, "octet": n_bytes / report["encode_seconds"] / 1e6,
           "package_all": n_bytes / theirs_all / 1e6, "octet_all": n_bytes / report_all["seconds"] / 1e6}
    row["ratio"] = row["octet"] / row["package"]
    return row


def main():
    in_environment()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--octet", default=str(ROOT / "build/octet"))
    parser.add_argument("--bytes", type=int, default=20_000_000)
    parser.add_argument("--speed-bytes", type=int, default=50_000_000)
    parser.add_argument("--document-bytes", type=int, default=100_000)
    parser.add_argument("--characters", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    import tokenizers
    print(f"tokenizers {tokenizers.__version__}, {len(os.sched_getaffinity(0))} cores", flush=True)
    results = {"tokenizers": tokenizers.__version__, "cores": len(os.sched_getaffinity(0)), "rows": {}}
    n_differ = 0
    for name in args.names or FILES:
        path = str(path_of(args.data, name))
        package = package_tokenizer(args.data, name)
        row = results["rows"][name] = {}
        if args.bytes:
            row["ids"] = compare_ids(args.octet, path, package, english(args.data, args.bytes, args.document_bytes), "English")
            n_differ += row["ids"]["differ"]
            print(f"{name}: {row['ids']['bytes']} bytes, {row['ids']['tokens']} tokens, {row['ids']['differ']} of "
                  f"{row['ids']['documents']} documents differ", flush=True)
        if args.characters:
            row["characters"] = characters_that_differ(args.octet, path, package, characters())
            print(f"{name}: {len(row['characters'])} code points differ: {' '.join(row['characters'][:40])}", flush=True)
        if args.speed_bytes:
            row["speed"] = s = speed(args.octet, path, package, english(args.data, args.speed_bytes, args.document_bytes))
            print(f"{name}: one thread {s['octet']:.1f} MB/s, package {s['package']:.2f} MB/s, {s['ratio']:.1f} x; all cores "
                  f"{s['octet_all']:.1f} and {s['package_all']:.2f} MB/s", flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(1 if n_differ else 0)


if __name__ == "__main__":
    main()
