#!/usr/bin/env python3
"""What each recipe loses on a public model, the systematic part and the draw of the weights' rounding apart.

    ./dev real [--quick] [--device cuda] [--recipes A,B] [--tokens 32768] [--data FILE] [--out CSV]

One line of CSV a recipe, in nats above fp32 on the same tokens, each with a standard error over windows (paired):

    as_is        L(W + d) - L(W): `octet eval --recipe R`, where d is the rounding of the layers' weights
    mirrored     L(W - d) - L(W): the weights are 2 W - q(W), which no longer are quantized (recipe.override w: none); all else as is
    systematic   the mean of both, in which what is linear in d drops out
    draw         half their difference: the loss's gradient times d, which another scale would draw anew
    emulation    as_is of the same formats, granularities, shared scales, roundings and saved activations in PyTorch, where it is
                 installed and the recipe is one of EMULATED; difference: as_is minus it

`R:stored` is recipe R whose forward pass reads stored activations (recipe.forward_reads), `R:power` one whose blocks have scales that
are powers of two (recipe.block_scale).
A recipe whose line the file has, for the same model, tokens and device, is not run again. --quick: three recipes, 2,048 tokens.
"""

import argparse
import csv
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import real_emulation
from fetch_model import make_model
from real_weights import mirror_model

RECIPES = ["bf16", "fp8_linear", "hif8", "fp8_row", "fp8_block", "fp8_block:power", "coat-block", "mxfp8", "fp8_lm", "coat", "coat:stored", "coat-fast", "scalify_fp8",
           "coat-static"]
QUICK = ["bf16", "fp8_linear", "coat-static"]
FIELDS = ["model", "device", "tokens", "recipe", "fp32", "as_is", "as_is_error", "mirrored", "mirrored_error", "systematic",
          "systematic_error", "draw", "emulation", "difference"]
EMULATED = real_emulation.RECIPES
STORED, POWER = real_emulation.STORED, real_emulation.POWER
WIDE_WEIGHTS = ["--set", "recipe.override.*={w: none}"]


def evaluate(flags, model: Path, recipe: str, sets=()) -> tuple[list[float], list[int]]:
    """Sums of nll and tokens, by window."""
    for variant, key in ((STORED, "recipe.forward_reads=stored"), (POWER, "recipe.block_scale=power")):
        if recipe.endswith(variant):
            recipe, sets = recipe.removesuffix(variant), [*sets, "--set", key]
    command = [str(flags.build / "octet"), "eval", "--json", "--quiet", "--per-row", "--model", str(model), "--data", str(flags.data),
               "--max-tokens", str(flags.tokens), "--seq", str(flags.seq), "--batch", str(flags.batch), "--recipe", recipe,
               "--device", flags.device, *sets]
    rows = [row for row in json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout) if "#" in row["task"]]
    return [row["nll"] * row["tokens"] for row in rows], [row["tokens"] for row in rows]


def mean_and_error(sums: list[float], tokens: list[int]) -> tuple[float, float]:
    """A ratio of sums over windows, and its standard error (delta method)."""
    n, mean = len(sums), sum(sums) / sum(tokens)
    if n < 2:
        return mean, math.nan
    squares = sum((s - mean * t) ** 2 for s, t in zip(sums, tokens))
    return mean, math.sqrt(squares * n / (n - 1)) / sum(tokens)


def less(a: list[float], b: list[float]) -> list[float]:
    return [x - y for x, y in zip(a, b)]


def judge(flags, model: Path, recipe: str, base) -> dict:
    base_sums, tokens = base
    as_is = less(evaluate(flags, model, recipe)[0], base_sums)
    row = {"recipe": recipe, "fp32": mean_and_error(base_sums, tokens)[0]}
    row["as_is"], row["as_is_error"] = mean_and_error(as_is, tokens)
    row["systematic"], row["systematic_error"] = row["as_is"], row["as_is_error"]
    mirror = mirror_model(model, recipe.removesuffix(STORED), flags.build / "models" / "mirrored")
    if mirror is not None:
        mirrored = less(evaluate(flags, mirror, recipe, WIDE_WEIGHTS)[0], base_sums)
        shutil.rmtree(mirror)
        row["mirrored"], row["mirrored_error"] = mean_and_error(mirrored, tokens)
        row["systematic"], row["systematic_error"] = mean_and_error([(a + m) / 2 for a, m in zip(as_is, mirrored)], tokens)
        row["draw"] = (row["as_is"] - row["mirrored"]) / 2
    if recipe in EMULATED and not flags.no_emulation and real_emulation.is_available():
        ids = token_ids(flags, model)
        size = (flags.seq, flags.batch)
        row["emulation"] = real_emulation.nll(model, ids, size, recipe) - real_emulation.nll(model, ids, size, "fp32")
        row["difference"] = row["as_is"] - row["emulation"]
    return row


def token_ids(flags, model: Path) -> list[int]:
    """The tokens that are evaluated: the text's first ones."""
    text = flags.data.read_text(encoding="utf-8")[: 16 * flags.tokens]  # no token of prose is so long
    command = [str(flags.build / "octet"), "tokenize", "--tokenizer", str(model), "--ids", "--no-special"]
    words = subprocess.run(command, check=True, stdout=subprocess.PIPE, input=text.encode()).stdout.split()
    return [int(word) for word in words][: flags.tokens + 1]


def rounded(row: dict) -> dict:
    return {key: f"{value:.5f}" if isinstance(value, float) else value for key, value in row.items()}


def key_of(row: dict) -> tuple:
    return tuple(str(row[field]) for field in ("model", "device", "tokens", "recipe"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="a name of tools/fetch_model.py, or a model folder in f32")
    parser.add_argument("--recipes", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--tokens", type=int, default=0)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/text/wikitext2/wiki.test.raw"))
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--no-emulation", action="store_true")
    flags = parser.parse_args()
    flags.tokens = flags.tokens or (2048 if flags.quick else 32768)
    flags.batch = min(flags.batch, -(-flags.tokens // flags.seq))
    if not flags.data.exists():
        raise SystemExit(f"real: --data: expected a text, got none at {flags.data}")
    out = flags.out or flags.build / "real.csv"
    model = Path(flags.model) if Path(flags.model).is_dir() else make_model(flags.model, flags.build)
    recipes = [name for name in flags.recipes.split(",") if name] or (QUICK if flags.quick else RECIPES)
    old = list(csv.DictReader(open(out, encoding="utf-8"))) if out.exists() else []
    done = {key_of(row): row for row in old}
    writer = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    writer.writeheader()
    base = None
    for recipe in recipes:
        row = {"model": flags.model, "device": flags.device, "tokens": flags.tokens, "recipe": recipe}
        if key_of(row) not in done:
            base = base or evaluate(flags, model, "fp32")
            done[key_of(row)] = rounded({**row, **judge(flags, model, recipe, base)})
            with open(out, "w", encoding="utf-8") as file:
                table = csv.DictWriter(file, FIELDS, lineterminator="\n")
                table.writeheader()
                table.writerows(done.values())
        writer.writerow(done[key_of(row)])
        sys.stdout.flush()


if __name__ == "__main__":
    main()
