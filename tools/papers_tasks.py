"""The tasks of tools/papers.py: each trains and evaluates with the `octet` program, and yields figures.

A task is a function of (bench, entry, seed) that yields (variant, metric, value, standard error over rows or None, rows).
"""

import array
import json
import math
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import papers_data
from papers_entries import BUDGETS, METHODS, RECIPES

SEQ, SPAN_SEQ = 64, 128  # tokens of a row
N_TRAINED, N_TESTED = 8000, 1000  # pairs, answers
N_SIMILAR = 300  # pairs that are embedded


class Skipped(Exception):
    """An entry cannot be run here; says why."""


class Bench:
    """The program, the data and what was trained so far: runs are shared by the entries."""

    def __init__(self, program, data, work, budget, device, threads=0, limit_s=None):
        self.program, self.data, self.work = str(Path(program).resolve()), Path(data), Path(work)
        self.budget, self.device, self.threads = budget, device, threads
        self.sizes = BUDGETS.get(budget, {})
        self.deadline = None if limit_s is None else time.monotonic() + limit_s
        self.work.mkdir(parents=True, exist_ok=True)

    def need(self, path):
        found = self.data / path
        if not found.exists():
            raise Skipped(f"'{found}' is missing: --data is the folder with {path}")
        return found

    def model(self, name):
        """A folder of ./dev model, beside the program."""
        folder = Path(self.program).parent / "models" / name
        if not (folder / "config.json").exists():
            raise Skipped(f"'{folder}' is missing: ./dev model {name}")
        return folder

    def run(self, *arguments, device=None):
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise Skipped("the time of --limit-s is over")
        command = [self.program, *map(str, arguments), "--device", device or self.device, "--threads", str(self.threads), "--quiet"]
        done = subprocess.run(command, cwd=self.work, capture_output=True, text=True)
        if done.returncode != 0:
            raise Skipped(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def has_task(self, name):
        shown = subprocess.run([self.program, "eval", "--help"], capture_output=True, text=True).stdout
        return name in shown

    def train(self, name, kind, recipe, seed, sections):
        """A run of this name, once; its folder."""
        return self.train_with(name, recipe, RECIPES[kind][recipe], seed, sections)

    def train_with(self, name, recipe, text, seed, sections):
        """text: what the run file's `recipe` says."""
        out = self.work / f"{name}-{recipe}-{seed}"
        lines = [f"{key}: {keys}" for key, keys in sections.items()]
        config = self.work / f"{out.name}.yaml"
        config.write_text("\n".join([*lines, f"recipe: {text}", f"out: {out}"]) + "\n", encoding="utf-8")
        return self.trained(out, config, seed)

    def trained(self, out, config, seed, *flags):
        """The run's folder; trained once, and again where a training did not come to its end."""
        ended = out.with_name(f"{out.name}.ended")
        if not (ended.exists() and out.exists()):
            shutil.rmtree(out, ignore_errors=True)
            self.run("train", config, "--seed", seed, *flags)
            ended.touch()
        return out

    def vit(self, recipe, seed):
        train = self.sizes["vit_train"]
        pictures = self.need("images/cifar10/train_jpeg.pack")
        return self.train("vit", "vit", recipe, seed, {
            "model": mapping(kind="vit", **self.sizes["vit"], image_size=32, patch_size=4, channels=3, classes=10),
            "optim": mapping(lr=train["lr"], warmup=train["steps"] // 10),
            "data": f"{{train: [{pictures}], val_fraction: 0, images: {{mean: [0.4914, 0.4822, 0.4465], std: [0.2023, 0.1994, 0.201], "
                    "crop: random, pad: 4, flip: true}}",
            "train": mapping(steps=train["steps"], batch=train["batch"], eval_every=0, save_every=0)})

    def tokenizer(self):
        path = self.work / "tokenizer.json"
        if not path.exists():
            papers_data.make_tokenizer(self.need("text/wiki_en/wiki_train_01.txt"), path)
        vocab = json.loads(path.read_text(encoding="utf-8"))["model"]["vocab"]
        return path, len(vocab)

    def made(self, kind, suffix, maker, seed):
        """Training and test data; the test's are the same for all seeds."""
        files = []
        for part, source, n in (("train", "wiki_train_01.txt", N_TRAINED), ("test", "wiki_val_00.txt", N_TESTED)):
            path = self.work / f"{kind}-{part}-{seed if part == 'train' else 0}{suffix}"
            if not path.exists():
                maker(self.need(f"text/wiki_en/{source}"), path, n, seed if part == "train" else 0)
            files.append(path)
        return files

    def bert(self, name, head, data, recipe, seed, seq=SEQ):
        train = self.sizes["bert_train"]
        tokenizer, vocab = self.tokenizer()
        return self.train(name, "bert", recipe, seed, {
            "model": mapping(kind="bert", **self.sizes["bert"], vocab=vocab, seq=seq, head=head),
            "optim": mapping(lr=train["lr"], warmup=train["steps"] // 10),
            "data": mapping(train=f"[{data}]", tokenizer=tokenizer, val_fraction=0),
            "train": mapping(steps=train["steps"], batch=train["batch"], eval_every=0, save_every=0)})

    def quantize(self, run, method, calib, test, limit, seq=0):
        """The line of octet ptq's table, and the folder."""
        out = self.work / f"{run.name}-{method}"
        shutil.rmtree(out, ignore_errors=True)
        text = self.run("ptq", "--json", "--model", run, *METHODS[method].split(), "--calib", calib, "--samples", 64, "--eval", test,
                        "--batch", 50, "--limit", limit, "--seq", seq, "--out", out)
        return json.loads(text)["models"][0], out


def mapping(**keys):
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys.items()) + "}"


def of_line(variant, line, names):
    rows = int(line["rows"] if "rows" in line else line["n"])
    for name in names:
        if name in line:
            error = line.get(name + "_se", line.get("stderr") if name == "acc" else None)
            yield variant, name, float(line[name]), None if error is None else float(error), rows


def train_vit(bench, entry, seed):
    bench.need("images/cifar10/test_jpegdecoded.bin.xz")
    for recipe in (entry.baseline, *entry.variants):
        text = bench.run("eval", "--json", "--model", bench.vit(recipe, seed), "--tasks", "cifar10", "--task-data", bench.need("images"),
                         "--batch", 100, "--limit", bench.sizes["pictures"])
        yield from of_line(recipe, json.loads(text)[0], ("acc", "top5", "cross_entropy"))


def quantized(bench, entry, run, calib, test, metrics, limit=0):
    for method in entry.variants:
        line, folder = bench.quantize(run, method, calib, test, limit)
        yield from of_line(method, line, [f"{metric}_{part}" for metric in metrics for part in ("before", "after", "change")])
        shutil.rmtree(folder)


def ptq_vit(bench, entry, seed):
    calib, test = bench.need("images/cifar10/train_jpeg.pack"), bench.need("images/cifar10/test_jpegdecoded.bin.xz")
    run = bench.vit(entry.baseline, seed)
    yield from quantized(bench, entry, run, calib, test, ("acc", "top5", "cross_entropy"), bench.sizes["pictures"])


def ptq_bert_mlm(bench, entry, seed):
    train, test = bench.need("text/wiki_en/wiki_train_01.txt"), bench.need("text/wiki_en/wiki_val_00.txt")
    yield from quantized(bench, entry, bench.bert("mlm", "masked", train, entry.baseline, seed), train, test, ("nll",), N_TESTED)


def train_bert_pairs(bench, entry, seed):
    train, test = bench.made("pairs", ".jsonl", papers_data.make_pairs, seed)
    for recipe in (entry.baseline, *entry.variants):
        run = bench.bert("pairs", "classes", train, recipe, seed)
        text = bench.run("eval", "--json", "--model", run, "--data", test, "--batch", 50)
        yield from of_line(recipe, json.loads(text)[0], ("f1", "acc", "cross_entropy"))


def ptq_bert_pairs(bench, entry, seed):
    train, test = bench.made("pairs", ".jsonl", papers_data.make_pairs, seed)
    run = bench.bert("pairs", "classes", train, entry.baseline, seed)
    yield from quantized(bench, entry, run, train, test, ("f1", "acc", "cross_entropy"))


def ptq_bert_spans(bench, entry, seed):
    if not bench.has_task("spans"):
        raise Skipped("this program has no task `spans` (octet eval --help)")
    train, test = bench.made("spans", ".json", papers_data.make_spans, seed)
    run = bench.bert("spans", "span", train, entry.baseline, seed, SPAN_SEQ)

    def scores(model):
        row = json.loads(bench.run("eval", "--json", "--model", model, "--tasks", f"spans:{test}", "--recipe", "fp32", "--batch", 50))[0]
        return {"f1": float(row["f1"]), "exact": float(row["exact"])}, int(row["n"])

    before, rows = scores(run)
    for method in entry.variants:
        _, folder = bench.quantize(run, method, train, test, 50)
        after, _ = scores(folder)
        for name, value in before.items():
            yield method, f"{name}_before", value, None, rows
            yield method, f"{name}_after", after[name], None, rows
            yield method, f"{name}_change", after[name] - value, None, rows
        shutil.rmtree(folder)


def vectors(bench, model, texts):
    """Of each text, of length 1."""
    out = bench.work / "vectors.npy"
    table = json.loads(bench.run("embed", "--overwrite", "--json", "--model", model, "--texts", texts, "--out", out))[0]
    data = out.read_bytes()
    numbers = array.array("f", data[10 + int.from_bytes(data[8:10], "little"):])  # behind NumPy's header
    return [numbers[i * table["width"]:(i + 1) * table["width"]] for i in range(table["texts"])]


def cosine(x, y):
    return math.fsum(a * b for a, b in zip(x, y))


def ranks(values):
    """Equal ones have the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    for begin, i in enumerate(order):
        same = values.count(values[i])
        if begin == 0 or values[order[begin - 1]] != values[i]:
            for j in order[begin:begin + same]:
                result[j] = begin + (same + 1) / 2
    return result


def ptq_minilm(bench, entry, seed):
    model = bench.model("minilm")
    files = []
    for name, source in (("calib", "wiki_train_01.txt"), ("test", "wiki_val_00.txt")):
        files.append(bench.work / f"similar-{name}-{seed}.jsonl")
        papers_data.make_similar(bench.need(f"text/wiki_en/{source}"), files[-1], N_SIMILAR, seed)
    pairs = [json.loads(line) for line in files[1].read_text(encoding="utf-8").splitlines()]
    texts = bench.work / f"similar-{seed}.txt"
    texts.write_text("".join(f"{pair['sentence1']}\n{pair['sentence2']}\n" for pair in pairs), encoding="utf-8")

    def spearman(found):
        cosines = [cosine(found[i], found[i + 1]) for i in range(0, len(found), 2)]
        return statistics.correlation(ranks(cosines), ranks([pair["score"] for pair in pairs]))

    exact = vectors(bench, model, texts)
    before = spearman(exact)
    for method in entry.variants:
        line, folder = bench.quantize(model, method, files[0], files[1], 100, SEQ)
        found = vectors(bench, folder, texts)
        shutil.rmtree(folder)
        after, kept = spearman(found), [cosine(x, y) for x, y in zip(exact, found)]
        yield method, "spearman_before", before, None, len(pairs)
        yield method, "spearman_after", after, None, len(pairs)
        yield method, "spearman_change", after - before, None, len(pairs)
        yield method, "cosine", statistics.fmean(kept), statistics.stdev(kept) / math.sqrt(len(kept)), len(kept)
        for part in ("before", "after", "change"):
            yield method, f"nll_{part}", float(line[f"nll_{part}"]), float(line[f"nll_{part}_se"]), int(line["rows"])


TASKS = {task.__name__: task for task in (train_vit, ptq_vit, ptq_bert_mlm, ptq_bert_spans, train_bert_pairs, ptq_bert_pairs,
                                       ptq_minilm)}
