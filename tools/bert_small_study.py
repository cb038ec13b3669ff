#!/usr/bin/env python3
"""A small BERT by Octet's recipes beside PyTorch, in pairs: same rows with the same hidden tokens, first weights, order, learning rates and
optimizer.

    tools/bert_small_study.py --program octet --text DATA/text/wiki_en --out DIR [--tasks masked,span] [--seeds 3] [--steps 200]

A pair of runs differs in arithmetic alone. Rows are arrays in .safetensors files that both read: text of 64 tokens, 15 % of them hidden (80 %
as [MASK], 10 % as another, 10 % as they are), and the blanked phrases of tools/papers.py with a context, 128 tokens. The first weights are
transformers' for a seed, which Octet loads as a model folder; without pad_token_id, for which its row of the embedding gets no gradient there,
though a span's loss reads padding. PyTorch takes the learning rates that Octet's run recorded. Writes runs.csv (task, seed, side, val_loss,
train_loss: the mean of the last 50 steps) and prints paired differences with their standard errors.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertForQuestionAnswering, PreTrainedTokenizerFast

import paired_runs
import papers_data
from paired_runs import last_loss, paired, rates, records, train_torch, write

BATCH, N_VAL, SHARE = 32, 512, 0.15
SEQ = {"masked": 64, "span": 128}
IGNORED = -1


def masked_rows(tokenizer, text, n, seed):
    """Rows of running text, each [CLS] ... [SEP]."""
    rng, inner = np.random.default_rng(seed), SEQ["masked"] - 2
    ids = []
    for paragraph in papers_data.paragraphs(text):
        ids += tokenizer(paragraph, add_special_tokens=False)["input_ids"]
        if len(ids) >= n * inner:
            break
    real = np.array(ids[:n * inner]).reshape(n, inner)
    labels, tokens = np.full(real.shape, IGNORED), real.copy()
    hidden, kind = rng.random(real.shape) < SHARE, rng.random(real.shape)
    labels[hidden] = real[hidden]
    tokens[hidden & (kind < 0.8)] = tokenizer.mask_token_id
    other = hidden & (kind >= 0.9)
    tokens[other] = rng.integers(len(papers_data.SPECIAL), len(tokenizer), other.sum())
    edge = np.full((n, 1), 1)
    tokens = np.hstack([edge * tokenizer.cls_token_id, tokens, edge * tokenizer.sep_token_id])
    return {"tokens": tokens, "token_types": tokens * 0, "labels": np.hstack([edge * IGNORED, labels, edge * IGNORED]),
            "lengths": np.full(n, SEQ["masked"])}


def span_rows(tokenizer, text, n, seed, folder):
    """Rows [CLS] question [SEP] context [SEP]; those that are too long are left out."""
    path, length = Path(folder) / "spans.json", SEQ["span"]
    papers_data.make_spans(text, path, 2 * n, seed)
    rows = {name: [] for name in ("tokens", "token_types", "lengths", "start_positions", "end_positions")}
    for one in json.loads(path.read_text(encoding="utf-8"))["data"]:
        context, qa = one["paragraphs"][0]["context"], one["paragraphs"][0]["qas"][0]
        row = tokenizer(qa["question"], context, return_token_type_ids=True)
        answer = qa["answers"][0]
        first = row.char_to_token(0, answer["answer_start"], 1)
        last = row.char_to_token(0, answer["answer_start"] + len(answer["text"]) - 1, 1)
        padding = length - len(row["input_ids"])
        if padding < 0 or first is None or last is None:
            continue
        rows["tokens"].append(row["input_ids"] + [tokenizer.pad_token_id] * padding)
        rows["token_types"].append(row["token_type_ids"] + [0] * padding)
        rows["lengths"].append(length - padding)
        rows["start_positions"].append(first)
        rows["end_positions"].append(last)
        if len(rows["tokens"]) == n:
            break
    return {name: np.array(values) for name, values in rows.items()}


def make_rows(args, task):
    """Files of training and validation rows, and the vocabulary's size."""
    words = Path(args.out) / "tokenizer.json"
    papers_data.make_tokenizer(f"{args.text}/wiki_train_01.txt", words, 2000)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(words), pad_token="[PAD]", mask_token="[MASK]", cls_token="[CLS]", sep_token="[SEP]")
    files = {}
    for part, source, n in (("train", "wiki_train_01.txt", BATCH * args.steps), ("val", "wiki_val_00.txt", N_VAL)):
        text, files[part] = f"{args.text}/{source}", f"{args.out}/{task}_{part}.safetensors"
        rows = masked_rows(tokenizer, text, n, 1) if task == "masked" else span_rows(tokenizer, text, n, 1, args.out)
        save_file({name: torch.from_numpy(values).int().contiguous() for name, values in rows.items()}, files[part])
    return files, len(tokenizer)


def first_weights(args, task, seed, vocab):
    torch.manual_seed(seed)
    config = BertConfig(vocab_size=vocab, hidden_size=args.hidden, num_hidden_layers=args.layers, num_attention_heads=4,
                        intermediate_size=4 * args.hidden, max_position_embeddings=SEQ[task], hidden_dropout_prob=0,
                        attention_probs_dropout_prob=0, pad_token_id=None)
    model = (BertForMaskedLM if task == "masked" else BertForQuestionAnswering)(config)
    model.save_pretrained(f"{args.out}/{task}_init_{seed}")
    return model


def run_octet(args, task, files, seed, recipe):
    out = paired_runs.run_octet(args.program, args.device, f"{args.out}/{task}_{recipe}_{seed}", [
        f"model.path={args.out}/{task}_init_{seed}", f"model.seq={SEQ[task]}", f"recipe={recipe}", f"data.train=[{files['train']}]",
        f"data.val=[{files['val']}]", "data.sampling=sequential", f"train.steps={args.steps}", f"train.batch={BATCH}",
        f"train.eval_every={args.steps}", "train.eval_bytes=1000000000", "train.save_every=0", f"train.seed={seed}", "optim.lr=1.0e-3",
        "optim.warmup=40", "optim.betas=[0.9, 0.999]", "optim.weight_decay=0"])
    lines = records(out)
    return out, {"val_loss": [one for one in lines if "val_loss" in one][-1]["val_loss"],
                 "train_loss": last_loss([one["loss"] for one in lines if "loss" in one])}


def loss_sum(task, model, rows):
    """Over what counts in these rows, and how much that is."""
    mask = torch.arange(SEQ[task], device=rows["tokens"].device)[None] < rows["lengths"][:, None]
    given = model(input_ids=rows["tokens"].long(), token_type_ids=rows["token_types"].long(), attention_mask=mask.long())
    cross_entropy = torch.nn.functional.cross_entropy
    if task == "masked":
        labels = rows["labels"].flatten().long()
        return cross_entropy(given.logits.float().flatten(0, 1), labels, ignore_index=IGNORED, reduction="sum"), (labels != IGNORED).sum()
    ends = [(given.start_logits, rows["start_positions"]), (given.end_logits, rows["end_positions"])]
    return sum(cross_entropy(logits.float(), at.long(), reduction="sum") for logits, at in ends) / 2, len(rows["tokens"])


def run_torch(args, task, files, model, step_rates, dtype):
    device = "cuda" if args.device == "cuda" else "cpu"
    model = model.to(device).train()
    train, val = ({name: values.to(device) for name, values in load_file(files[part]).items()} for part in ("train", "val"))

    def on_rows(source, rows):
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bf16"):
            return loss_sum(task, model, {name: values[rows] for name, values in source.items()})

    def loss_of(step):
        rows = torch.arange(step * BATCH, (step + 1) * BATCH, device=device)
        total, n = on_rows(train, rows % len(train["tokens"]))
        return total / n

    losses = train_torch(model, step_rates, loss_of)
    model.eval()
    with torch.no_grad():
        sums = [on_rows(val, slice(begin, begin + BATCH)) for begin in range(0, len(val["tokens"]), BATCH)]
    return {"val_loss": sum(float(total) for total, _ in sums) / sum(int(n) for _, n in sums), "train_loss": last_loss(losses)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/octet")
    parser.add_argument("--text", required=True, help="the folder with wiki_train_01.txt and wiki_val_00.txt")
    parser.add_argument("--out", required=True)
    parser.add_argument("--tasks", default="masked,span")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dtypes", default="fp32,bf16", help="recipes of Octet, and what PyTorch computes in")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    dtypes, rows = args.dtypes.split(","), []
    for task in args.tasks.split(","):
        files, vocab = make_rows(args, task)
        for seed in range(1, args.seeds + 1):
            for dtype in dtypes:
                model = first_weights(args, task, seed, vocab)
                out, found = run_octet(args, task, files, seed, dtype)
                rows.append({"task": task, "seed": seed, "side": f"octet_{dtype}", **found})
                found = run_torch(args, task, files, model, rates(out), dtype)
                rows.append({"task": task, "seed": seed, "side": f"pytorch_{dtype}", **found})
                print(*rows[-2:], sep="\n", file=sys.stderr, flush=True)
                write(f"{args.out}/runs.csv", rows, 6)
        own = [row for row in rows if row["task"] == task]
        for dtype in dtypes:
            text = "  ".join("{} {:+.6f} +- {:.6f}".format(figure, *paired(own, f"octet_{dtype}", f"pytorch_{dtype}", figure))
                             for figure in ("val_loss", "train_loss"))
            print(f"{task}: octet_{dtype} - pytorch_{dtype}: {text}")


if __name__ == "__main__":
    main()
