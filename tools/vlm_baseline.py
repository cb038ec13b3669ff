#!/usr/bin/env python3
"""The fine-tuning step of a LLaVA of 7B beside PyTorch in BF16 (transformers' class, each layer compiled), and the losses of the two from the same weights.

    tools/vlm_baseline.py speed [--batch 4] [--steps 8] [--layers 32] [--device cuda] [--yaml FILE] [--eager]
    octet bench step FILE --recipes bf16,coat --device cuda
    tools/vlm_baseline.py losses DIR --octet PROGRAM [--steps 30] [--device cuda] [--hidden 1024 --layers 8]

speed: random weights: CLIP's ViT-L with 576 rows a picture, LLaMA's 7B decoder, one picture and 2,048 tokens a row; AdamW (fused), weights and moments in
BF16. Prints the median of the steps behind the first three, the allocator's peak, and the first and the last loss on one batch. --yaml writes the run file of
the same shape.
losses: a smaller model (the tower as wide as the decoder) of transformers with random weights in a folder, four conversations about random pictures, which are
each step's batch. `octet train` of BF16 and COAT begin with the folder; PyTorch trains the same rows (`octet data inspect`) by f32 weights under autocast.
Prints the loss of steps side by side.
"""

import argparse
import json
import random
import subprocess
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import LlavaConfig, LlavaForConditionalGeneration

import make_picture_questions as made

SIDE, PATCH, IMAGE = 336, 14, 256
YAML = """model: {{kind: llava, text: llama, hidden: 4096, layers: {layers}, heads: 32, kv_heads: 32, ffn: 11008, vocab: 32064, seq: {seq}, images: 1, image_token: {image},
        tower: clip, image_size: 336, patch_size: 14, vision_hidden: 1024, vision_layers: 24, vision_heads: 16, vision_ffn: 4096, vision_layer: -2}}
recipe: coat
optim: {{lr: 2.0e-5}}
data: {{train: [none.jsonl], tokenizer: bytes, chat: {{template: chatml}}}}
train: {{steps: 100, batch: {batch}}}
out: runs/llava-7b
"""


def model_of(hidden, layers, ffn, vocab, tower, device, dtype, heads=32):
    width, depth, n_heads, tower_ffn = tower
    config = LlavaConfig(
        vision_config={"model_type": "clip_vision_model", "hidden_size": width, "num_hidden_layers": depth, "num_attention_heads": n_heads,
                       "intermediate_size": tower_ffn, "image_size": SIDE, "patch_size": PATCH},
        text_config={"model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads,
                     "intermediate_size": ffn, "vocab_size": vocab, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
        image_token_index=IMAGE, vision_feature_layer=-2)
    torch.manual_seed(1)
    with torch.device(device):
        model = LlavaForConditionalGeneration._from_config(config, dtype=dtype, attn_implementation="sdpa")
    return model.train()


def compile_layers(model):
    """Each layer by itself, which takes seconds where the whole takes minutes."""
    for module in model.modules():
        if type(module).__name__ in ("LlamaDecoderLayer", "CLIPEncoderLayer"):
            module.compile()


def step(model, optimizer, tokens, labels, pictures):
    logits = model(input_ids=tokens, pixel_values=pictures, use_cache=False).logits
    loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-1)
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
        Path(args.yaml).write_text(YAML.format(layers=args.layers, seq=args.seq, batch=args.batch, image=IMAGE), encoding="utf-8")
    tower = (1024, 24, 16, 4096) if args.hidden == 4096 else (args.hidden, 2, 4, 2 * args.hidden)
    model = model_of(args.hidden, args.layers, args.hidden * 11008 // 4096, 32064, tower, args.device, torch.bfloat16)
    if not args.eager:
        compile_layers(model)
    n_rows = (SIDE // PATCH) ** 2
    tokens = torch.randint(0, 250, (args.batch, args.seq), device=args.device)
    tokens[:, 5:5 + n_rows] = IMAGE
    labels = torch.randint(0, 32000, (args.batch, args.seq), device=args.device)
    labels[:, :5 + n_rows] = -1
    pictures = torch.randn(args.batch, 3, SIDE, SIDE, device=args.device, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    times, losses = [], []
    for _ in range(3 + args.steps):
        wait(args.device)
        began = time.perf_counter()
        losses.append(step(model, optimizer, tokens, labels, pictures))
        wait(args.device)
        times.append(time.perf_counter() - began)
    median = sorted(times[3:])[args.steps // 2]
    peak = torch.cuda.max_memory_allocated() / 2**30 if args.device == "cuda" else float("nan")
    n = sum(one.numel() for one in model.parameters())
    print(f"PyTorch {torch.__version__}, BF16, {n / 1e6:.0f} M parameters, {args.batch} x {args.seq} tokens: {1e3 * median:.1f} ms a step, "
          f"{args.batch * args.seq / median:.0f} tokens/s, peak {peak:.1f} GiB, loss {losses[0].item():.3f} to {losses[-1].item():.3f}; "
          f"first step {times[0]:.1f} s")


def conversations(folder, args):
    """As many as a batch, of nearly a row, about pictures of noise, whose pixels it returns, from -1 to 1."""
    rng = random.Random(1)
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    n_words = (args.seq - (SIDE // PATCH) ** 2 - 40) // 8
    rows, pictures = [], []
    for i in range(args.batch):
        name, pixels = f"pictures/{i}.png", [rng.randbytes(3 * SIDE) for _ in range(SIDE)]
        (folder / name).write_bytes(made.png(SIDE, SIDE, pixels, 2))
        values = torch.frombuffer(bytearray(b"".join(pixels)), dtype=torch.uint8).view(SIDE, SIDE, 3).permute(2, 0, 1)
        pictures.append((values.float() / 255 - 0.5) / 0.5)
        answer = " ".join("".join(rng.choices("abcdefgh", k=6)) for _ in range(n_words))
        rows.append(made.conversation("What is in the picture?", [name], answer))
    made.lines(folder / "train.jsonl", rows)
    (folder / "tokenizer.json").write_text(json.dumps(made.tokenizer(), ensure_ascii=False), encoding="utf-8")
    return pictures


def octet_losses(folder, recipe, args):
    out = folder / f"run-{recipe}"
    config = folder / f"{recipe}.yaml"
    config.write_text(f"""model: {{path: {folder}/model, seq: {args.seq}, images: 1}}
recipe: {recipe}
optim: {{lr: {args.lr}, warmup: 0, schedule: constant, weight_decay: 0, betas: [0.9, 0.999], eps: 1.0e-8, clip: 1.0}}
data: {{train: [{folder}/train.jsonl], val_fraction: 0, tokenizer: {folder}/tokenizer.json, chat: {{template: chatml}}, too_long: drop,
       images: {{stretch: true, filter: bicubic, size: {SIDE}, mean: [0.5], std: [0.5]}}}}
train: {{steps: {args.steps}, batch: {args.batch}, eval_every: 0, save_every: 0}}
out: {out}
""", encoding="utf-8")
    subprocess.run([args.octet, "train", config, "--device", args.device, "--quiet", "--overwrite"], check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [row["loss"] for row in rows if "loss" in row], config


def torch_losses(folder, config, known, args):
    shown = json.loads(subprocess.run([args.octet, "data", "inspect", config, "--json", "--n", str(args.batch), "--quiet"], check=True,
                                      capture_output=True, text=True).stdout)["first"]
    tokens, labels = (torch.tensor([row[name] for row in shown]).to(args.device) for name in ("tokens", "labels"))
    # Each row's picture is the one whose mean it tells.
    seen = [min(known, key=lambda one, row=row: abs(one.mean().item() - row["pictures"]["mean"])) for row in shown]
    pictures = torch.stack(seen).to(args.device)
    model = LlavaForConditionalGeneration.from_pretrained(folder / "model", dtype=torch.float32, attn_implementation="sdpa").to(args.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    losses = []
    for _ in range(args.steps):
        with torch.autocast(args.device, dtype=torch.bfloat16):
            losses.append(step(model, optimizer, tokens, labels, pictures).item())
    return losses


def losses(args):
    folder = Path(args.folder).resolve()
    known = conversations(folder, args)
    tower = (args.hidden, max(2, args.layers), max(1, args.hidden // 64), 4 * args.hidden)
    heads = max(1, args.hidden // 128)
    model_of(args.hidden, args.layers, args.hidden * 11008 // 4096, 512, tower, args.device, torch.float32, heads).save_pretrained(folder / "model")
    found, config = {}, None
    for recipe in args.recipes.split(","):
        found[recipe], config = octet_losses(folder, recipe, args)
    found = {"PyTorch": torch_losses(folder, config, known, args), **found}
    print("step | " + " | ".join(found))
    for i in sorted({0, 1, 2, 4, *range(9, args.steps, 10), args.steps - 1}):
        if i < args.steps:
            print(f"{i + 1} | " + " | ".join(f"{one[i]:.4f}" for one in found.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measured = commands.add_parser("speed")
    measured.add_argument("--hidden", type=int, default=4096)
    measured.add_argument("--layers", type=int, default=32)
    measured.add_argument("--yaml")
    measured.add_argument("--eager", action="store_true", help="without torch.compile")
    measured.set_defaults(call=speed, steps=8)
    compared = commands.add_parser("losses")
    compared.add_argument("folder")
    compared.add_argument("--octet", required=True)
    compared.add_argument("--recipes", default="bf16,coat")
    compared.add_argument("--hidden", type=int, default=1024)
    compared.add_argument("--layers", type=int, default=8)
    compared.add_argument("--lr", type=float, default=1e-4)
    compared.set_defaults(call=losses, steps=30)
    for one in (measured, compared):
        one.add_argument("--steps", type=int, default=one.get_default("steps"))
        one.add_argument("--batch", type=int, default=4)
        one.add_argument("--seq", type=int, default=2048)
        one.add_argument("--device", default="cuda")
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
