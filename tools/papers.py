#!/usr/bin/env python3
"""Runs what papers show, at the size of this machine, and prints it beside what they print.

  tools/papers.py list                                   entries, and what is recorded of them
  tools/papers.py run ENTRY... [--budget ci|small|full|large] [--seeds N] [--first-seed N] [--device cpu|cuda] [--data DIR] [--out DIR]
  tools/papers.py render [--check]                       docs/papers.md from docs/results/papers/*.csv

`run` writes OUT/ENTRY.csv; rows of another budget, device or seed stay. --data is the folder with images/cifar10/,
images/mnist/, text/wiki_en/, text/books/, tokenizers/gpt2/ and weights/cifar_resnet/, each where an entry needs it, and pairs/
where pairs of texts are not to be made of this machine's catalogues. Without --work
the trained models are thrown away. Only the standard library, and the program.
"""

import argparse
import csv
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import papers_tasks
from papers_entries import BUDGETS, ENTRIES as NETWORKS
from papers_cnn_entries import CNN_BUDGETS, CNN_ENTRIES
from papers_cnn_tasks import CNN_TASKS
from papers_llm_entries import LLM_BUDGETS, LLM_ENTRIES
from papers_llm_tasks import LLM_TASKS
from papers_translation_entries import TRANSLATION_BUDGETS, TRANSLATION_ENTRIES
from papers_translation_tasks import TRANSLATION_TASKS
from papers_vlm import VLM_BUDGETS, VLM_ENTRIES, VLM_TASKS

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs/results/papers"
PAGE = ROOT / "docs/papers.md"
LEAST_SEEDS = 3  # that a difference is decided by
ENTRIES = (*NETWORKS, *CNN_ENTRIES, *LLM_ENTRIES, *TRANSLATION_ENTRIES, *VLM_ENTRIES)
TASKS = {**papers_tasks.TASKS, **CNN_TASKS, **LLM_TASKS, **TRANSLATION_TASKS, **VLM_TASKS}
COLUMNS = ("budget", "device", "processor", "seed", "variant", "metric", "value", "se", "rows")


def processor(device):
    if device == "cuda":
        names = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True).stdout.splitlines()
        return names[0] if names else "GPU"
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'CPU'}, {len(os.sched_getaffinity(0))} cores"


def budgets_of(entry):
    return LLM_BUDGETS if entry in LLM_ENTRIES else TRANSLATION_BUDGETS if entry in TRANSLATION_ENTRIES else BUDGETS


def read_rows(folder, entry):
    path = Path(folder) / f"{entry.name}.csv"
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def write_rows(folder, entry, rows):
    Path(folder).mkdir(parents=True, exist_ok=True)
    with open(Path(folder) / f"{entry.name}.csv", "w", newline="", encoding="utf-8") as lines:
        out = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


def run(args):
    chosen = [entry for entry in ENTRIES if entry.name in args.entries]
    unknown = set(args.entries) - {entry.name for entry in ENTRIES}
    if unknown:
        sys.exit(f"papers.py: expected entries of {', '.join(entry.name for entry in ENTRIES)}, got {', '.join(sorted(unknown))}")
    for entry in chosen:
        if args.budget not in budgets_of(entry):
            sys.exit(f"papers.py: --budget: expected one of {', '.join(budgets_of(entry))} for {entry.name}, got {args.budget}")
    made_of = processor(args.device)
    out = Path(args.out).resolve()
    n_skipped = 0
    with tempfile.TemporaryDirectory() as temporary:
        bench = papers_tasks.Bench(args.program, Path(args.data).resolve(), Path(args.work or temporary).resolve(), args.budget, args.device,
                                   args.threads, args.limit_s)
        seeds = range(args.first_seed, args.first_seed + args.seeds)
        replaced = {(args.budget, args.device, str(seed)) for seed in seeds}
        rows = {entry.name: [row for row in read_rows(out, entry) if (row["budget"], row["device"], row["seed"]) not in replaced]
                for entry in chosen}
        # Seed by seed, so that a time limit leaves whole pairs.
        for seed in seeds:
            for entry in chosen:
                try:
                    found = list(TASKS[entry.task](bench, entry, seed))
                except papers_tasks.Skipped as skipped:
                    print(f"{entry.name}, seed {seed}: left out: {skipped}", file=sys.stderr)
                    n_skipped += 1
                    continue
                for variant, metric, value, error, n in found:
                    rows[entry.name].append({
                        "budget": args.budget, "device": args.device, "processor": made_of, "seed": str(seed), "variant": variant,
                        "metric": metric, "value": f"{value:.9g}" if abs(value) < 0.001 else f"{value:.6f}", "se": "" if error is None else f"{error:.6f}", "rows": str(n)})
                write_rows(out, entry, rows[entry.name])
                print(f"{entry.name}, seed {seed}: {len(found)} figures")
    return 1 if n_skipped else 0


def seeds_text(seeds):
    return "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"


class Measured:
    """The rows of an entry with one budget and device, as changes of its metric in the paper's unit."""

    def __init__(self, entry, rows):
        self.entry, self.rows = entry, rows
        self.is_ptq = any(row["metric"].endswith("_change") for row in rows)
        self.processor = rows[0]["processor"]
        self.seeds = sorted({int(row["seed"]) for row in rows})
        self.n_rows = rows[0]["rows"]

    def values(self, variant, metric):
        """By seed."""
        return {int(row["seed"]): (self.entry.factor * float(row["value"]), row["se"]) for row in self.rows
                if (row["variant"], row["metric"]) == (variant, metric)}

    def of(self, variant):
        """Means of baseline and variant, the mean change and its standard error, over the seeds that have both."""
        name = self.entry.metric
        if self.is_ptq:
            before, after, change = (self.values(variant, f"{name}_{part}") for part in ("before", "after", "change"))
        else:
            before, after = self.values(self.entry.baseline, name), self.values(variant, name)
            change = {seed: (self.changed(before[seed][0], after[seed][0]), "") for seed in before if seed in after}
        seeds = sorted(change)
        if not seeds:
            return None
        changes = [change[seed][0] for seed in seeds]
        error = None
        if len(seeds) > 1:
            error = statistics.stdev(changes) / math.sqrt(len(seeds))
        elif self.is_ptq and change[seeds[0]][1]:
            error = abs(self.entry.factor) * float(change[seeds[0]][1])
        return (statistics.fmean(before[seed][0] for seed in seeds), statistics.fmean(after[seed][0] for seed in seeds),
                statistics.fmean(changes), error, len(seeds))

    def changed(self, before, after):
        return before / after if self.entry.criterion.kind == "times" else after - before

    def verdicts(self):
        """By variant; those whose order or ratio is judged have one together."""
        variants = self.entry.variants
        if self.entry.criterion.kind in ("ordered", "times"):
            return dict.fromkeys(variants, self.verdict(variants))
        return {variant: self.verdict((variant,)) for variant in variants}

    def verdict(self, variants):
        found = [self.of(variant) for variant in variants]
        if None in found:
            return "not measured as a whole"
        criterion = self.entry.criterion
        changes = [one[2] for one in found]
        if criterion.above and not self.is_above(found[0][0], *criterion.above):
            return f"not decided: the baseline is not {criterion.above[1]} above {criterion.above[0]}"
        if any((one[3] or 0) > criterion.most_error for one in found):
            return f"not decided: a standard error is above {criterion.most_error:g}"
        if criterion.kind == "ordered":
            return self.order(found)
        if criterion.kind == "times":
            return self.many_times(dict(zip(self.entry.variants, found)))
        if criterion.kind == "within":
            if all(abs(change) <= max(criterion.points, 2 * (one[3] or 0)) for change, one in zip(changes, found)):
                return "agrees"
            return "differs" if len(self.seeds) >= LEAST_SEEDS else f"not decided by {seeds_text(self.seeds)}"
        if all(-change <= criterion.points for change in changes):
            return "agrees"
        is_clear = self.has_errors(found) and any(-one[2] - 2 * one[3] > criterion.points for one in found)
        return "differs" if is_clear else "not decided: within two standard errors of the limit"

    def is_above(self, score, metric, points):
        others = [value for value, _ in self.values(self.entry.baseline, metric).values()]
        return bool(others) and score - statistics.fmean(others) >= points

    def many_times(self, by_variant):
        least = self.entry.criterion.least
        missing = {variant: least[variant] - by_variant[variant][2] for variant in least}
        errors = {variant: by_variant[variant][3] or 0 for variant in least}
        return "agrees" if all(missing[variant] <= 2 * errors[variant] for variant in least) else "differs"

    def order(self, found):
        """Of the first two variants, by the error of their difference: over the seeds, or of one seed over the rows, which are not paired."""
        if len(self.seeds) >= LEAST_SEEDS:
            changes = [self.values(variant, f"{self.entry.metric}_change") for variant in self.entry.variants[:2]]
            differences = [changes[0][seed][0] - changes[1][seed][0] for seed in self.seeds if all(seed in one for one in changes)]
            mean, error = statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(len(differences))
        elif self.has_errors(found[:2]):
            mean, error = found[0][2] - found[1][2], math.hypot(found[0][3], found[1][3])
        else:
            return f"not decided by {seeds_text(self.seeds)}"
        if abs(mean) <= 2 * error:
            return "not decided: within two standard errors"
        return "agrees" if mean > 0 else "differs"

    @staticmethod
    def has_errors(found):
        return all(one[3] is not None for one in found)


def verdict_text(verdicts):
    """One for all where they are the same."""
    if len(set(verdicts.values())) == 1:
        return next(iter(verdicts.values()))
    return ", ".join(f"{variant} {verdict}" for variant, verdict in verdicts.items())


def measurements(folder, entry):
    rows = read_rows(folder, entry)
    keys = dict.fromkeys((row["budget"], row["device"]) for row in rows)
    return {key: Measured(entry, [row for row in rows if (row["budget"], row["device"]) == key]) for key in keys}


def is_times(entry):
    return entry.criterion.kind == "times"


def number(entry, x, signed=False):
    """Percentages with two digits, as the papers print them; nats with four; sizes and errors with four digits."""
    if x is None:
        return "n/a"
    sign = "+" if signed else ""
    return f"{x:{sign}.4g}" if is_times(entry) else f"{x:{sign}.{2 if entry.factor == 100 else 4}f}"


def change_text(entry, change):
    return f"{change:.2f} x" if is_times(entry) else number(entry, change, True)


def table(heads, rows):
    return ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads), *("| " + " | ".join(row) + " |" for row in rows), ""]


def section(folder, entry):
    lines = [f"## {entry.title}", "", f"`{entry.name}`: {entry.source}, table {entry.table}.", ""]
    lines += [f"- *Ours*: {entry.model}; {entry.data}.", f"- *Agrees* where {entry.criterion.said}."]
    if entry.differs:
        lines.append(f"- *Differs from the paper*: {entry.differs}.")
    lines.append("")
    rows = []
    for row in entry.published:
        if row.baseline is None:
            rows.append(["published", row.row, "n/a", "", "n/a", "n/a", row.words])
        for variant, value in row.values.items():
            rows.append(["published", row.row, number(entry, row.baseline), f"`{variant}`", number(entry, value),
                         change_text(entry, row.baseline / value if is_times(entry) else value - row.baseline), ""])
    for (budget, device), measured in measurements(folder, entry).items():
        verdicts = measured.verdicts()
        where = f"`{budget}`, {device} ({measured.processor}), {seeds_text(measured.seeds)}"
        for variant in entry.variants:
            found = measured.of(variant)
            if found is None:
                continue
            before, after, change, error, _ = found
            text = change_text(entry, change) + ("" if error is None else f" +- {number(entry, error)}")
            rows.append([where, f"`{entry.metric}`, {measured.n_rows} rows", number(entry, before), f"`{variant}`", number(entry, after), text,
                         verdicts[variant]])
            where = ""
    if not measurements(folder, entry):
        rows.append(["ours", "", "", "", "", "", "not measured"])
    return lines + table(("", "row", "baseline", "variant", "its score", "change", ""), rows)


def page(folder):
    lines = ["# What papers show, again at small scale", "",
             "This page is generated by `tools/papers.py render` from [results/papers](results/papers/README.md). Only differences and orders carry over",
             "from a paper's models to small ones, so changes are compared, not scores. Figures that are not known are n/a.", "",
             "```sh", "# needs the data, a folder with images/cifar10, text/wiki_en, text/books, tokenizers/gpt2, weights/cifar_resnet", "tools/papers.py list",
             "tools/papers.py run fp8-vit hif8-vit --budget small --seeds 2 --program build/octet --data DIR", "tools/papers.py run coat-layer coat-memory      # plans alone", "tools/papers.py render", "",
             "# on a GPU: a ViT-small in BF16, FP8, COAT, FP16 and HiFloat8; two seeds take eight minutes of an H100 beside other runs",
             "tools/papers.py run fp8-vit hif8-vit --budget full --seeds 5 --device cuda --program build/octet --data DIR",
             "# language models of 26 M parameters: a run takes about ten seconds of an H200 beside two others",
             "tools/papers.py run coat-llm coat-attention coat-groups coat-states hif8-llm hif8-llm-als hif8-llm-ptq fp8-llm fp8-llm-ptq \\",
             "  --budget full --seeds 3 --device cuda --program build/octet --data DIR",
             "# models that translate, and T5; --budget ci tries all three in seconds",
             "tools/papers.py run fp8-transformer fp8-lstm hif8-transformer hif8-t5 --budget small --seeds 3 --program build/octet --data DIR",
             "# a model that sees pictures; DIR has images/mnist, too",
             "tools/papers.py run coat-vlm --budget full --seeds 3 --device cuda --program build/octet --data DIR",
             "```", ""]
    for heads, parts, budgets in ((("vision transformer", "its training", "BERT", "its training"), ("vit", "vit_train", "bert", "bert_train"), BUDGETS),
                                  (("residual network", "MobileNetV2", "their training"), ("resnet", "mobilenet", "cnn_train"), CNN_BUDGETS),
                                  (("Llama", "its training", "GPT-2", "its training"), ("llama", "llama_train", "gpt2", "gpt2_train"), LLM_BUDGETS),
                                  (("Transformer", "its training", "T5", "its training"), ("marian", "marian_train", "t5", "t5_train"),
                                   TRANSLATION_BUDGETS),
                                  (("LLaVA", "its training", "pictures of each kind"), ("llava", "llava_train", "pictures"), VLM_BUDGETS)):
        lines += table(("budget", *heads), [[f"`{name}`", *(", ".join(f"{key} {value}" for key, value in sizes[part].items()) for part in parts)]
                                            for name, sizes in budgets.items()])
    lines += ["A change's error is the standard error over seeds; with one seed, of a quantized model, over rows. Runs of one seed have the same initial",
              "weights and the same order of the data. Changes of published rows are differences of the printed scores; with an x, quotients. Fewer than three seeds decide no",
              "difference between trainings.", ""]
    for entry in ENTRIES:
        lines += section(folder, entry)
    return "\n".join(lines).rstrip("\n") + "\n"


def render(args):
    text = page(args.results)
    if args.check:
        if PAGE.read_text(encoding="utf-8") != text:
            print("docs/papers.md: expected what `tools/papers.py render` writes, got another page")
            return 1
        return 0
    Path(args.page).write_text(text, encoding="utf-8")
    return 0


def list_entries(args):
    for entry in ENTRIES:
        found = measurements(args.results, entry)
        states = [f"{budget} on {device}, {seeds_text(one.seeds)}: {verdict_text(one.verdicts())}" for (budget, device), one in found.items()]
        print(f"{entry.name:20} {entry.source.split(',')[0]}, table {entry.table}: {'; '.join(states) or 'not measured'}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    listed = commands.add_parser("list")
    listed.add_argument("--results", default=RESULTS)
    listed.set_defaults(call=list_entries)
    ran = commands.add_parser("run")
    ran.add_argument("entries", nargs="+", metavar="ENTRY")
    ran.add_argument("--budget", choices=tuple(dict.fromkeys((*BUDGETS, *CNN_BUDGETS, *LLM_BUDGETS, *TRANSLATION_BUDGETS))), default="small")
    ran.add_argument("--seeds", type=int, default=1)
    ran.add_argument("--first-seed", type=int, default=0)
    ran.add_argument("--device", default="cpu")
    ran.add_argument("--threads", type=int, default=0)
    ran.add_argument("--program", default=ROOT / "build/octet")
    ran.add_argument("--data", default="data")
    ran.add_argument("--out", default=RESULTS, help="where the CSV files go")
    ran.add_argument("--work", help="keeps runs and made data there, and takes those that are there")
    ran.add_argument("--limit-s", type=float, help="starts nothing more after so many seconds")
    ran.set_defaults(call=run)
    rendered = commands.add_parser("render")
    rendered.add_argument("--results", default=RESULTS)
    rendered.add_argument("--page", default=PAGE)
    rendered.add_argument("--check", action="store_true")
    rendered.set_defaults(call=render)
    args = parser.parse_args()
    return args.call(args)


if __name__ == "__main__":
    sys.exit(main())
