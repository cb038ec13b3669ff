#!/usr/bin/env python3
"""A page of captions of several models beside each other, as COAT's appendix B has them.

    tools/captions.py OUT.md QUESTIONS NAME=RUN NAME=RUN ... [--program build/octet] [--device cpu|cuda] [--limit 24] [--note TEXT]

QUESTIONS is a file of `octet eval --tasks vqa:FILE`, best of `tools/make_picture_questions.py --types caption`, which holds questions in forms that nothing was
trained on. Each run is asked the first `limit` of them with the most probable token at each place; the pictures are copied into a folder beside the page, named as
it is. Only the standard library, and the program.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def questions_of(path, limit):
    """The first questions, each with its pictures' paths."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()][:limit]
    for row in rows:
        images = row.get("images", row.get("image", []))
        row["images"] = [path.parent / image for image in ([images] if isinstance(images, str) else images)]
        row["answers"] = row.get("answers", [row.get("answer", "")])
    return rows


def answers(args, run):
    """What a run says to each question, and whether that is right."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "answers.jsonl"
        subprocess.run([args.program, "eval", "--quiet", "--json", "--model", run, "--tasks", f"vqa:{args.questions}", "--limit", str(args.limit),
                        "--max-new-tokens", str(args.max_new_tokens), "--predictions", str(out), "--device", args.device],
                       check=True, stdout=subprocess.DEVNULL)
        return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def cell(text):
    """Of a Markdown table: no column ends in it, and no line."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def copied(images, folder):
    """Pictures below the page, as links to them."""
    folder.mkdir(parents=True, exist_ok=True)
    for image in images:
        shutil.copyfile(image, folder / image.name)
    return " ".join(f"![{image.name}]({folder.name}/{image.name})" for image in images)


def page(args, rows, said):
    names = list(said)
    yield "# Captions"
    yield ""
    if args.note:
        yield args.note
        yield ""
    for name, of_run in said.items():
        n_right = sum(row["right"] for row in of_run)
        yield f"- `{name}`: {n_right} of {len(rows)} are the reference's words" + (
            "." if name == names[0] else f", {sum(a['prediction'] == b['prediction'] for a, b in zip(of_run, said[names[0]]))} those of `{names[0]}`.")
    yield ""
    yield "| picture | question | reference | " + " | ".join(f"`{name}`" for name in names) + " |"
    yield "| --- | --- | --- |" + " --- |" * len(names)
    for i, row in enumerate(rows):
        texts = [row["question"], row["answers"][0], *(said[name][i]["prediction"] for name in names)]
        yield f"| {copied(row['images'], args.out.with_suffix(''))} | " + " | ".join(map(cell, texts)) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN")
    parser.add_argument("--program", default="build/octet")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--limit", type=int, default=24)
    parser.add_argument("--max-new-tokens", type=int, default=48)
    parser.add_argument("--note", default="", help="a paragraph above the table: how the runs were trained")
    args = parser.parse_args()
    runs = [run.partition("=") for run in args.runs]
    if any(not name or not path for name, _, path in runs):
        sys.exit(f"captions.py: expected NAME=RUN, got {' '.join(args.runs)}")
    rows = questions_of(args.questions, args.limit)
    said = {name: answers(args, path) for name, _, path in runs}
    if any(len(of_run) != len(rows) for of_run in said.values()):
        sys.exit(f"captions.py: expected an answer to each of {len(rows)} questions")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("\n".join(page(args, rows, said)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
