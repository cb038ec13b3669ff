#!/usr/bin/env python3
"""GGUF files of a model by Octet, beside llama.cpp, as CSV: do both go on from ten prompts with the same most probable tokens, and how far
are their log-probabilities apart.

    PYTHON tools/gguf_proof.py PROGRAM MODEL [--csv FILE]

PYTHON has the packages `xllamacpp`, which packs llama.cpp, and `numpy`; without them the exit status is 77. PROGRAM is octet, MODEL a model
folder with a byte-level vocabulary (./dev model smollm2). Of each type: `equal`, the prompts whose 24 greedy tokens are the same as
Octet's own from what it reads back; `same_ids`, texts whose ids are the same; `largest` and `top1`, of octet.check_folder. The last row is
the model that the Q8_0 file holds, as F32, without llama.cpp's rounding of activations. Exit status 0 where all ids are the same, both F32
files go on alike from every prompt, and each type passes octet.check_folder.
"""

import argparse
import contextlib
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

TOKENS = 24
PROMPTS = [
    "The capital of France is", "Water boils at", "def fibonacci(n):\n", "Once upon a time, in a small village,", "The three primary colours are",
    "<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n", "In 1969, the first", "A list of fruit:\n- apples\n-", "2 + 2 =",
    "The opposite of hot is",
]
TEXTS = [*PROMPTS, "caf\u00e9 na\u00efve \u201cquotes\u201d", "1234567890 3.14", "\u65e5\u672c\u8a9e \u0442\u0435\u043a\u0441\u0442", "tabs\t\tand  spaces\r\n\n", "\U0001f44d\U0001f3fd don't we'Re", "e\u0301 \u00bd \u216b"]


def program(path, *arguments, **options):
    return subprocess.run([path, *map(str, arguments)], check=True, capture_output=True, text=True, **options).stdout


def own_texts(octet, folder, scratch):
    prompts = scratch / "prompts.txt"
    prompts.write_text("".join(json.dumps(prompt) + "\n" for prompt in PROMPTS))
    rows = program(octet, "generate", "--model", folder, "--prompts", prompts, "--max-tokens", TOKENS, "--temperature", 0, "--recipe", "fp32",
                   "--json", "--quiet")
    return [row["completion"] for row in json.loads(rows)]


def serve(path):
    from octet import check_folder
    return check_folder.llama_server(path, n_ctx=512)


def tokenize(server, text, **how):
    request = urllib.request.Request(server.listening_address + "/tokenize", json.dumps({"content": text} | how).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["tokens"]


def row_of(octet, model, dtype, scratch):
    from octet import check_folder
    path, folder = scratch / f"{dtype}.gguf", scratch / dtype
    program(octet, "convert", model, path, "--dtype", dtype, "--verify", "--quiet")
    program(octet, "convert", path, folder, "--quiet")
    server = serve(path)
    theirs = [server.handle_completions({"prompt": prompt, "n_predict": TOKENS, "temperature": 0.0, "cache_prompt": False})["choices"][0]["text"]
              for prompt in PROMPTS]
    ours = own_texts(octet, folder, scratch)
    same = sum(tokenize(server, text, parse_special=True) ==
               [int(x) for x in program(octet, "tokenize", "--tokenizer", path, "--ids", input=text).split()] for text in TEXTS)
    verdict = check_folder.llama_cpp(path)
    largest, top1 = (re.search(pattern, " ".join(verdict.words)).group(1) for pattern in (r"difference (\S+)", r"top-1 (\S+)"))
    return {"dtype": dtype, "bytes": path.stat().st_size, "equal": f"{sum(a == b for a, b in zip(ours, theirs, strict=True))}/{len(PROMPTS)}",
            "same_ids": f"{same}/{len(TEXTS)}", "largest": largest, "top1": top1, "verdict": verdict.result}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model", type=Path)
    parser.add_argument("--csv", type=Path)
    flags = parser.parse_args()
    try:
        import numpy  # noqa: F401
        import xllamacpp  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    if not (flags.model / "config.json").exists():
        print(f"skipped: no model in {flags.model}")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        octet, scratch = os.path.abspath(flags.program), Path(scratch)
        rows = [row_of(octet, flags.model, dtype, scratch) for dtype in ("f32", "f16", "bf16", "q8_0")]
        (scratch / "again").mkdir()
        rows.append(row_of(octet, scratch / "q8_0", "f32", scratch / "again") | {"dtype": "q8_0 as f32"})
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(open(flags.csv, "w", newline="")) if flags.csv else sys.stdout
        writer = csv.DictWriter(out, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    alike = {rows[0]["equal"], rows[-1]["equal"]} == {f"{len(PROMPTS)}/{len(PROMPTS)}"} and all(row["same_ids"] == f"{len(TEXTS)}/{len(TEXTS)}" for row in rows)
    return 0 if alike and all(row["verdict"] == "pass" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
