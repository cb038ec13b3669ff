"""The tasks of tools/papers.py about decoders, in the form of papers_tasks.py: train_llm, ptq_llm, study_states, plan_layer, plan_memory,
train_scalify."""

import json
import lzma
import math
import shutil
from pathlib import Path

from papers_llm_entries import LLM_BUDGETS, LLM_METHODS, LLM_RECIPES
from papers_tasks import mapping

ROOT = Path(__file__).resolve().parents[1]
VALIDATION = "text/wiki_en/wiki_val_00.txt"
OTHER_TEXT = "text/books/books_val_00.txt"
LIMIT_GIB = 80  # of the GPU for which COAT's table 7 looks for the largest batch


def wiki(bench):
    """The training text; unpacked once."""
    path = bench.work / "wiki_train_00.txt"
    if not path.exists():
        with lzma.open(bench.need("text/wiki_en/wiki_train_00.txt.xz")) as packed, open(path, "wb") as plain:
            shutil.copyfileobj(packed, plain)
    return path


def llama(bench, recipe, seed, part=1, **optim):
    """A run's folder. part: of the steps that the budget has."""
    sizes = LLM_BUDGETS[bench.budget]
    train = sizes["llama_train"]
    steps = int(train["steps"] * part)
    return bench.train_with(f"llama-{steps}", recipe, LLM_RECIPES[recipe], seed, {
        "model": mapping(kind="llama", **sizes["llama"], vocab=256),
        "optim": mapping(lr=train["lr"], schedule="cosine", warmup=steps // 20, final_lr=0.1, betas="[0.9, 0.95]", weight_decay=0.1, **optim),
        "data": mapping(train=f"[{wiki(bench)}]", val=f"[{bench.need(VALIDATION)}]", tokenizer="bytes", sampling="random"),
        "train": mapping(steps=steps, batch=train["batch"], eval_every=steps, eval_bytes=131072, save_every=0)})


def metrics_of(run):
    with open(run / "metrics.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def train_figures(variant, run):
    rows = metrics_of(run)
    last = rows[-min(50, len(rows)):]
    yield variant, "loss", float(rows[-1]["val_loss"]), None, 131072
    yield variant, "train_loss", math.fsum(row["loss"] for row in last) / len(last), None, sum(row["labels"] for row in last)
    yield variant, "skipped", float(sum(row.get("skipped", 0) + row.get("overflowed", 0) for row in rows)), None, len(rows)


def train_llm(bench, entry, seed):
    limit = LLM_BUDGETS[bench.budget]["bytes"]
    for recipe in (entry.baseline, *entry.variants):
        run = llama(bench, recipe, seed)
        yield from train_figures(recipe, run)
        line = json.loads(bench.run("eval", "--json", "--model", run, "--data", bench.need(OTHER_TEXT), "--max-tokens", limit or 1 << 20))[0]
        yield recipe, "books", float(line["nll"]), None, int(line["tokens"])


def ptq_llm(bench, entry, seed):
    run = llama(bench, entry.baseline, seed)
    limit = LLM_BUDGETS[bench.budget]["bytes"]
    for method in entry.variants:
        out = bench.work / f"{run.name}-{method}"
        shutil.rmtree(out, ignore_errors=True)
        text = bench.run("ptq", "--json", "--model", run, *LLM_METHODS[method].split(), "--calib", wiki(bench), "--samples", 16, "--eval",
                         bench.need(VALIDATION), "--max-tokens", limit or 1 << 19, "--out", out)
        line = json.loads(text)["models"][0]
        for part in ("before", "after", "change"):
            error = line.get(f"nll_{part}_se")
            yield method, f"nll_{part}", float(line[f"nll_{part}"]), None if error is None else float(error), int(line["tokens"])
        shutil.rmtree(out)


def study_states(bench, entry, seed):
    """Pairs are named as formats of m / v. Behind the last step, and behind a run of a quarter of the steps."""
    for metric, part in (("mse", 1), ("mse_of_a_quarter", 0.25)):
        run = llama(bench, "bf16", seed, part, state_m="f32", state_v="f32")
        table = json.loads(bench.run("study", "states", run, "--json", device="cpu"))
        cells = {row["m \\ v"]: row for row in table}
        for pair in (entry.baseline, *entry.variants):
            m, _, v = pair.partition(" / ")
            yield pair, metric, float(cells[m][v]), float(cells[m][f"{v} +-"]), len(table)


def plan(bench, recipe, batch):
    text = bench.run("plan", ROOT / "recipes/llama-2-7b.yaml", "--json", "--set", f"recipe={LLM_RECIPES[recipe]}", "--set", "optim.master=bf16_sr",
                     "--set", f"train.batch={batch}", device="cuda")
    return json.loads(text)


def plan_layer(bench, entry, seed):
    """Of a layer in the middle, in units of batch x seq x hidden x 2 bytes."""
    for recipe in (entry.baseline, *entry.variants):
        found = plan(bench, recipe, 4)
        kept = found["kept_per_layer_bytes"]
        yield recipe, "units", kept[len(kept) // 2] / found["u_bytes"], None, len(kept)


def bench_scaling(bench, entry, seed):
    sizes = LLM_BUDGETS[bench.budget]["scaling"]
    sets = [f"--set=train.batch={sizes['batch']}", *(f"--set=model.{key}={sizes[key]}" for key in ("seq", "hidden", "ffn"))]
    rows = {row["name"]: row["value"] for row in json.loads(bench.run("bench", "scaling", "--json", "--rounds", 20, *sets))}
    for source in (entry.baseline, *entry.variants):
        yield source, "ms", rows[f"scaling layer {source}"], None, sizes["batch"] * sizes["seq"]


def plan_memory(bench, entry, seed):
    gib = 1 << 30
    for recipe in (entry.baseline, *entry.variants):
        yield recipe, "peak", plan(bench, recipe, 2)["peak_bytes"] / gib, None, 2
        largest = 0
        for batch in range(1, 33):
            if plan(bench, recipe, batch)["peak_bytes"] > LIMIT_GIB * gib:
                break
            largest = batch
        yield recipe, "largest_batch", largest, None, LIMIT_GIB


def train_scalify(bench, entry, seed):
    """recipes/scalify/gpt2-168m-N.yaml, made shorter (`full`), or smaller, too."""
    sizes = LLM_BUDGETS[bench.budget]
    train = sizes["gpt2_train"]
    for variant in (entry.baseline, *entry.variants):
        out = bench.work / f"scalify-{variant[1:]}-{seed}"
        keys = {**{f"model.{key}": value for key, value in sizes["gpt2"].items()}, "train.steps": train["steps"], "train.batch": train["batch"],
                "train.eval_every": train["steps"], "train.eval_bytes": 131072, "train.save_every": 0, "optim.lr": train["lr"],
                "optim.warmup": train["steps"] // 6, "data.train": f"[{wiki(bench)}]", "data.val": f"[{bench.need(VALIDATION)}]",
                "data.tokenizer": bench.need("tokenizers/gpt2"), "data.sampling": "random", "out": out}
        sets = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
        bench.trained(out, ROOT / f"recipes/scalify/gpt2-168m-{variant[1:]}.yaml", seed, *sets)
        yield from train_figures(variant, out)


LLM_TASKS = {task.__name__: task for task in (train_llm, ptq_llm, study_states, plan_layer, bench_scaling, plan_memory, train_scalify)}
