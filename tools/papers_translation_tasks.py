"""The tasks of tools/papers.py about models with an encoder and a decoder, in the form of papers_tasks.py: train_translation, train_lstm,
train_t5."""

import collections
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import papers_data
from papers_llm_tasks import VALIDATION, metrics_of
from papers_tasks import Skipped, mapping
from papers_translation_entries import TRANSLATION_BUDGETS, TRANSLATION_RECIPES

ROOT = Path(__file__).resolve().parents[1]
SEQ = 64  # tokens of a target, and of a source
TEXT = "text/wiki_en/wiki_train_01.txt"
N_SENTINELS = 32


def gettext_pairs(bench):
    """The folder of pairs: that of the data, or made of this machine's catalogues once."""
    for folder in (bench.data / "pairs", bench.work / "pairs"):
        if (folder / "train.tsv").exists():
            return folder
    subprocess.run([sys.executable, ROOT / "tools/gettext_pairs.py", "de", folder], check=True, stdout=subprocess.DEVNULL)
    if len((folder / "train.tsv").read_text(encoding="utf-8").splitlines()) < 1000:
        raise Skipped(f"'{folder}' has no 1,000 pairs: the catalogues of installed packages (/usr/share/locale/de) have none")
    return folder


def tokenizer(bench, name, lines):
    """A BPE of these lines, made once, with the budget's number of tokens."""
    n = TRANSLATION_BUDGETS[bench.budget]["vocab"]
    path = bench.work / f"{name}-{n}.json"
    if not path.exists():
        papers_data.make_bpe(lines(), path, n)
    return path


def trained(bench, kind, recipe, seed, model, data, **train):
    sizes = TRANSLATION_BUDGETS[bench.budget]
    how = sizes[f"{kind}_train"]
    return bench.train_with(f"{kind}-{how['steps']}", recipe, TRANSLATION_RECIPES[recipe], seed, {
        "model": mapping(kind=kind, **sizes[kind], tied="true", seq=SEQ, source_seq=SEQ, **model),
        "optim": mapping(lr=how["lr"], schedule="inverse_sqrt", warmup=how["steps"] // 5, betas="[0.9, 0.98]", weight_decay=0.01),
        "data": mapping(**data),
        "train": mapping(steps=how["steps"], batch=how["batch"], eval_every=how["steps"], eval_rows=sizes["val_rows"], save_every=0, **train)})


def loss_figures(variant, run, n):
    rows = metrics_of(run)
    loss = float(rows[-1]["val_loss"])
    yield variant, "loss", loss, None, n
    yield variant, "perplexity", math.exp(loss), None, n
    yield variant, "skipped", float(sum(row.get("skipped", 0) + row.get("overflowed", 0) for row in rows)), None, len(rows)


def columns(path, n=None):
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    return zip(*(line.split("\t") for line in lines[:n]))


def is_prose(text):
    """Three words at least that fit into a row, without digits and signs of programs, which a copy of the source would have right."""
    return len(text.split()) > 2 and len(text.encode()) < SEQ and re.fullmatch(r"[^\W\d_](?:[^\W\d_]|[ ,.;:!?'’\"“”„»«()-])*", text) is not None


def prose_of(pairs, out):
    """Those pairs of a table of which both sides are prose, in a table of their own."""
    kept = [f"{source}\t{target}\n" for source, target in zip(*columns(pairs)) if is_prose(source) and is_prose(target)]
    out.write_text("source\ttarget\n" + "".join(kept), encoding="utf-8")
    return out


def words_of(text):
    """Tokenizer 13a of mteval, of texts without its entities."""
    text = re.sub(r"([{-~\[-` -&(-+:-@/])", r" \1 ", f" {text} ")
    text = re.sub(r"([^0-9])([.,])", r"\1 \2 ", text)
    text = re.sub(r"([.,])([^0-9])", r" \1 \2", text)
    return re.sub(r"([0-9])(-)", r"\1 \2 ", text).split()


def corpus_bleu(hypotheses, references):
    """BLEU of four orders with exponential smoothing, one reference each."""
    right, all_of, n_words, n_references = [0] * 4, [0] * 4, 0, 0
    for hypothesis, reference in zip(map(words_of, hypotheses), map(words_of, references)):
        n_words, n_references = n_words + len(hypothesis), n_references + len(reference)
        for n in range(4):
            found, wanted = (collections.Counter(zip(*(words[i:] for i in range(n + 1)))) for words in (hypothesis, reference))
            right[n] += sum((found & wanted).values())
            all_of[n] += sum(found.values())
    smooth, logs = 1, 0.0
    for n in range(4):
        if all_of[n] == 0:
            return 0.0
        if right[n] == 0:
            smooth *= 2
        logs += math.log(right[n] / all_of[n] if right[n] else 1 / (smooth * all_of[n]))
    return 100 * math.exp(logs / 4 + min(0, 1 - n_references / n_words))


def translated(bench, entry, seed, kind, **model):
    sizes = TRANSLATION_BUDGETS[bench.budget]
    pairs = gettext_pairs(bench)
    test = prose_of(pairs / "test.tsv", bench.work / "test.tsv")
    bpe = tokenizer(bench, "pairs", lambda: [line for column in columns(pairs / "train.tsv") for line in column])
    sources, targets = columns(test, sizes["pairs"])
    for recipe in (entry.baseline, *entry.variants):
        run = trained(bench, kind, recipe, seed, {"vocab": sizes["vocab"], **model},
                      {"train": f"[{pairs / 'train.tsv'}]", "val": f"[{pairs / 'val.tsv'}]", "tokenizer": bpe, "too_long": "drop", "buckets": 8},
                      label_smoothing=0.1)
        yield from loss_figures(recipe, run, sizes["val_rows"])
        text = bench.run("eval", "--json", "--model", run, "--tasks", f"bleu:{test},chrf:{test}", "--limit", sizes["pairs"], "--batch", 50, "--max-new-tokens", SEQ)
        for line, metric in zip(json.loads(text), ("bleu", "chrf")):
            yield recipe, metric, float(line[metric]), None, int(line["n"])
        yield recipe, "copy_bleu", corpus_bleu(sources, targets), None, len(sources)


def train_translation(bench, entry, seed):
    yield from translated(bench, entry, seed, "marian", scale_embedding="true")


def train_lstm(bench, entry, seed):
    yield from translated(bench, entry, seed, "lstm_seq2seq")


def train_t5(bench, entry, seed):
    sizes = TRANSLATION_BUDGETS[bench.budget]
    text = bench.need(TEXT)
    bpe = tokenizer(bench, "wiki", lambda: papers_data.paragraphs(text)[:20000])
    for recipe in (entry.baseline, *entry.variants):
        run = trained(bench, "t5", recipe, seed, {"vocab": sizes["vocab"] + N_SENTINELS, "feed_forward": "gated_gelu", "scale_head": "true"},
                      {"train": f"[{text}]", "val": f"[{bench.need(VALIDATION)}]", "tokenizer": bpe, "spans": "{share: 0.15, length: 3}"})
        yield from loss_figures(recipe, run, sizes["val_rows"])


TRANSLATION_TASKS = {task.__name__: task for task in (train_translation, train_lstm, train_t5)}
