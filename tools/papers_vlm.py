"""The entry of tools/papers.py about a model that sees pictures, and its task, in the form of papers_entries.py and papers_tasks.py."""

import collections
import json
import math
import subprocess
import sys
from pathlib import Path

import make_picture_questions
from papers_entries import Criterion, Entry, Published
from papers_llm_entries import COAT
from papers_llm_tasks import metrics_of
from papers_tasks import Skipped, mapping

VLM_RECIPES = {"bf16": "bf16", "fp8_linear": "fp8_linear", "coat": "coat"}
N_POINTS = 10  # of the training loss's curve, means of as many parts of the run

# Models and lengths of runs; pictures: of each kind to train on. full: for a GPU.
VLM_BUDGETS = {
    "small": {
        "llava": {"hidden": 64, "layers": 2, "heads": 4, "ffn": 160, "patch_size": 8, "vision_hidden": 64, "vision_layers": 2, "vision_heads": 4, "seq": 80},
        "llava_train": {"steps": 200, "batch": 16, "lr": 2e-3},
        "pictures": {"train": 300, "test": 60},
    },
    "full": {
        "llava": {"hidden": 256, "layers": 4, "heads": 4, "ffn": 704, "patch_size": 4, "vision_hidden": 192, "vision_layers": 6, "vision_heads": 6,
                  "projector_downsample": 2, "seq": 80},
        "llava_train": {"steps": 4000, "batch": 64, "lr": 1e-3},
        "pictures": {"train": 12000, "test": 2000},
    },
}

VLM_ENTRIES = (
    Entry(
        name="coat-vlm", title="A model that sees pictures, trained with COAT", source=COAT, table="5 and figure 7", task="train_vlm",
        model="a LLaVA, trained from new weights: CLIP's tower, of `full` with VILA's projector",
        data="conversations about MNIST and CIFAR-10 (`tools/make_picture_questions.py`): digits, whether they are even, which of two is larger, how many there "
             "are, what a picture shows, whether it is an animal; tested on held-out pictures with four held-out forms of each type of question",
        metric="acc", factor=100, baseline="bf16", variants=("fp8_linear", "coat"),
        criterion=Criterion("within", 1, "the paired mean of the change is within 1 point or two standard errors of at most 1 point", most_error=1),
        published=(Published("VILA1.5-7B, mean of nine benchmarks", 62.80, {"fp8_linear": 61.88, "coat": 62.51}),),
        differs="a small model from new weights in the place of the third stage of a 7B model; TE's place is taken by `fp8_linear`. `majority` of the CSV file is "
                "what each type's most frequent answer would score, `acc_TYPE` the score of a type, `acc_TYPE_N` that of its held-out form N, `peak` the plan's "
                "memory (MiB), `loss` the loss of validation in nats a trained token, and `curve_1` to `curve_10` are means of the training loss over tenths "
                "of the run, as figure 7 shows it"),
)


def questions(bench):
    """The folder of conversations and questions; made once, the same for all seeds."""
    out = bench.work / "questions"
    if not (out / "tokenizer.json").exists():
        data = [bench.need(f"images/{name}").parent for name in ("mnist/train-images-idx3-ubyte.gz", "cifar10/train_jpeg.pack")]
        counts = VLM_BUDGETS[bench.budget]["pictures"]
        command = [sys.executable, str(Path(__file__).parent / "make_picture_questions.py"), str(data[0].parent), str(out), "--train", str(counts["train"]),
                   "--test", str(counts["test"])]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode != 0:
            raise Skipped(f"`{' '.join(command)}` ended with {made.returncode}: {made.stderr.strip()[-500:]}")
    return out


def majority(path):
    """What each type's most frequent answer would score."""
    answers = collections.defaultdict(collections.Counter)
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        answers[row["type"]][row["answer"]] += 1
    return sum(max(found.values()) for found in answers.values()) / sum(sum(found.values()) for found in answers.values())


def llava(bench, recipe, seed, data):
    """A run's folder."""
    sizes = VLM_BUDGETS[bench.budget]
    train = sizes["llava_train"]
    return bench.train_with("vlm", recipe, VLM_RECIPES[recipe], seed, {
        "model": mapping(kind="llava", text="llama", tower="clip", vocab=512, images=2, image_token=256, image_size=32, vision_layer=-1, **sizes["llava"]),
        "optim": mapping(lr=train["lr"], schedule="cosine", warmup=train["steps"] // 20, final_lr=0.02),
        "data": f"{{train: [{data}/train.jsonl], val: [{data}/val.jsonl], tokenizer: {data}/tokenizer.json, chat: {{template: chatml}}, too_long: drop, "
                "images: {stretch: true, filter: bicubic}}",
        "train": mapping(steps=train["steps"], batch=train["batch"], eval_every=train["steps"], save_every=0)})


def curve(rows):
    """Means of the training loss over parts of the run."""
    losses = [row["loss"] for row in rows if "loss" in row]
    for i in range(N_POINTS):
        part = losses[len(losses) * i // N_POINTS:len(losses) * (i + 1) // N_POINTS]
        yield math.fsum(part) / len(part), len(part)


def by_form(path):
    """What was answered, by type of question and held-out form: (how many are right, of how many)."""
    found = collections.defaultdict(lambda: [0, 0])
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        counts = found[row["type"], make_picture_questions.held_out_form(row["type"], row["question"])]
        counts[0] += row["right"]
        counts[1] += 1
    return sorted((kind, form, n_right, n) for (kind, form), (n_right, n) in found.items())


def train_vlm(bench, entry, seed):
    data = questions(bench)
    held_out = data / "questions.jsonl"
    n_asked = len(held_out.read_text(encoding="utf-8").splitlines())
    yield entry.baseline, "majority", majority(held_out), None, n_asked
    for recipe in (entry.baseline, *entry.variants):
        run = llava(bench, recipe, seed, data)
        answers = bench.work / f"answers-{recipe}-{seed}.jsonl"
        for line in json.loads(bench.run("eval", "--json", "--model", run, "--tasks", f"vqa:{held_out}", "--batch", 100, "--predictions", answers)):
            name = "acc" if line["type"] == "all" else f"acc_{line['type']}"
            yield recipe, name, float(line["acc"]), float(line["stderr"]), int(line["n"])
        for kind, form, n_right, n in by_form(answers):
            share = n_right / n
            yield recipe, f"acc_{kind}_{form + 1}", share, math.sqrt(share * (1 - share) / n), n
        rows = metrics_of(run)
        yield recipe, "loss", float([row["val_loss"] for row in rows if "val_loss" in row][-1]), None, n_asked
        for i, (value, n) in enumerate(curve(rows)):
            yield recipe, f"curve_{i + 1}", value, None, n
        plan = json.loads(bench.run("plan", f"{run}.yaml", "--json"))
        yield recipe, "peak", plan["peak_bytes"] / (1 << 20), None, VLM_BUDGETS[bench.budget]["llava_train"]["batch"]


VLM_TASKS = {"train_vlm": train_vlm}
