#!/usr/bin/env python3
"""The training step of T5-base's shape (220 M) beside PyTorch in BF16 (transformers' class, compiled), and the losses of the two from the same weights.

    tools/t5_baseline.py speed [--batch 32] [--seq 512] [--steps 10] [--device cuda] [--yaml FILE] [--eager]
    octet bench step FILE --recipes bf16,coat --device cuda
    tools/t5_baseline.py losses DIR --octet PROGRAM [--steps 30] [--device cuda] [--layers 12]

speed: random weights and tokens, full rows on both sides, AdamW (fused), weights and moments in BF16, no dropout, norm of gradients clipped at 1. Prints the
median of the steps behind the first three, the allocator's peak, and the first and the last loss on one batch. --yaml writes the run file of the same shape.
losses: a model of transformers with random weights in a folder and as many pairs as a batch has rows, which are each step's batch. `octet train` of each
recipe begins with the folder; PyTorch trains the same rows (`octet data inspect`) by f32 weights under autocast. Prints the losses of steps side by side.
"""

import argparse
import json
import random
import subprocess
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import T5Config, T5ForConditionalGeneration

import make_picture_questions as made

VOCAB, PAD, END = 32128, 257, 258
YAML = """model: {{kind: t5, hidden: 768, layers: {layers}, heads: 12, ffn: 3072, tied: true, scale_head: true, vocab: {vocab}, seq: {seq}, source_seq: {seq}}}
recipe: coat
optim: {{lr: 1.0e-4, master: bf16_sr}}
data: {{train: [none.tsv], tokenizer: none.json}}
train: {{steps: 100, batch: {batch}}}
out: runs/t5-base
"""
TRAIN = """model: {{path: {folder}/model, seq: {seq}, source_seq: {seq}}}
recipe: {recipe}
optim: {{lr: {lr}, warmup: 0, schedule: constant, weight_decay: 0, betas: [0.9, 0.999], eps: 1.0e-8, clip: 1.0}}
data: {{train: [{folder}/sources.txt], targets: [{folder}/targets.txt], val_fraction: 0, tokenizer: {folder}/tokenizer.json}}
train: {{steps: {steps}, batch: {batch}, eval_every: 0, save_every: 0}}
out: {out}
"""


def model_of(args, dtype):
    config = T5Config(d_model=768, d_kv=64, d_ff=3072, num_layers=args.layers, num_heads=12, vocab_size=VOCAB, feed_forward_proj="relu", dropout_rate=0.0,
                      decoder_start_token_id=PAD, pad_token_id=PAD, eos_token_id=END, n_positions=args.seq, tie_word_embeddings=True)
    torch.manual_seed(1)
    with torch.device(args.device):
        return T5ForConditionalGeneration._from_config(config, dtype=dtype).train()


def step(model, optimizer, batch):
    logits = model(input_ids=batch["source"], attention_mask=batch["mask"], decoder_input_ids=batch["tokens"], use_cache=False).logits
    loss = F.cross_entropy(logits.flatten(0, 1).float(), batch["labels"].flatten(), ignore_index=-1)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def speed(args):
    if args.yaml:
        Path(args.yaml).write_text(YAML.format(layers=args.layers, vocab=VOCAB, seq=args.seq, batch=args.batch), encoding="utf-8")
    model = model_of(args, torch.bfloat16)
    n_params = sum(one.numel() for one in model.parameters())
    call = model if args.eager else torch.compile(model)
    tokens = lambda: torch.randint(0, 32000, (args.batch, args.seq), device=args.device)  # noqa: E731
    batch = {"source": tokens(), "tokens": tokens(), "labels": tokens(), "mask": None}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    times, losses = [], []
    for _ in range(3 + args.steps):
        wait(args.device)
        began = time.perf_counter()
        losses.append(step(call, optimizer, batch))
        wait(args.device)
        times.append(time.perf_counter() - began)
    median = sorted(times[3:])[args.steps // 2]
    peak = torch.cuda.max_memory_allocated() / 2**30 if args.device == "cuda" else float("nan")
    print(f"PyTorch {torch.__version__}, BF16, {n_params / 1e6:.0f} M parameters, {args.batch} x ({args.seq} + {args.seq}) tokens: {1e3 * median:.1f} ms a "
          f"step, {args.batch * args.seq / median:.0f} tokens of targets/s, peak {peak:.1f} GiB, loss {losses[0].item():.3f} to {losses[-1].item():.3f}; "
          f"first step {times[0]:.1f} s")


def pairs(folder, args):
    """As many as a batch, of nearly full rows, and their tokenizer."""
    rng = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    text = lambda: " ".join("".join(rng.choices("abcdefgh", k=6)) for _ in range(args.seq // 8)) + "\n"  # noqa: E731
    for name in ("sources", "targets"):
        (folder / f"{name}.txt").write_text("".join(text() for _ in range(args.batch)), encoding="utf-8")
    tokenizer = made.tokenizer()
    for added, name in zip(tokenizer["added_tokens"], ("<unk>", "<pad>", "</s>")):
        vocab = tokenizer["model"]["vocab"]
        vocab[name] = vocab.pop(added["content"])
        added["content"] = name
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")


def octet_losses(folder, recipe, args):
    out, config = folder / f"run-{recipe}", folder / f"{recipe}.yaml"
    config.write_text(TRAIN.format(folder=folder, seq=args.seq, recipe=recipe, lr=args.lr, steps=args.steps, batch=args.batch, out=out), encoding="utf-8")
    subprocess.run([args.octet, "train", config, "--device", args.device, "--quiet", "--overwrite"], check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [row["loss"] for row in rows if "loss" in row], config


def torch_losses(folder, config, args):
    shown = json.loads(subprocess.run([args.octet, "data", "inspect", config, "--json", "--n", str(args.batch), "--quiet"], check=True,
                                      capture_output=True, text=True).stdout)["first"]
    batch = {name: torch.tensor([row[name] for row in shown]).to(args.device) for name in ("source", "tokens", "labels")}
    lengths = torch.tensor([row["source_length"] for row in shown]).to(args.device)
    batch["mask"] = (torch.arange(batch["source"].shape[1], device=args.device) < lengths).long()
    model = T5ForConditionalGeneration.from_pretrained(folder / "model", dtype=torch.float32).to(args.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    found = []
    for _ in range(args.steps):
        with torch.autocast(args.device, dtype=torch.bfloat16):
            found.append(step(model, optimizer, batch).item())
    return found


def losses(args):
    folder = Path(args.folder).resolve()
    pairs(folder, args)
    model_of(args, torch.float32).save_pretrained(folder / "model")
    found, config = {}, None
    for recipe in args.recipes.split(","):
        found[recipe], config = octet_losses(folder, recipe, args)
    found = {"PyTorch": torch_losses(folder, config, args), **found}
    print("step | " + " | ".join(found))
    for i in sorted({0, 1, 2, 4, *range(9, args.steps, 10), args.steps - 1}):
        if i < args.steps:
            print(f"{i + 1} | " + " | ".join(f"{one[i]:.4f}" for one in found.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measured = commands.add_parser("speed")
    measured.add_argument("--yaml")
    measured.add_argument("--eager", action="store_true", help="without torch.compile")
    measured.set_defaults(call=speed, steps=10)
    compared = commands.add_parser("losses")
    compared.add_argument("folder")
    compared.add_argument("--octet", required=True)
    compared.add_argument("--recipes", default="bf16,coat")
    compared.add_argument("--lr", type=float, default=1e-4)
    compared.set_defaults(call=losses, steps=30)
    for one, batch in ((measured, 32), (compared, 8)):
        one.add_argument("--layers", type=int, default=12)
        one.add_argument("--steps", type=int, default=one.get_default("steps"))
        one.add_argument("--batch", type=int, default=batch)
        one.add_argument("--seq", type=int, default=512)
        one.add_argument("--device", default="cuda")
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
