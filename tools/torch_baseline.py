#!/usr/bin/python3
"""Tokens a second of a PyTorch training step of the 25M model on this CPU, as JSON.

Hidden 512, 8 layers, 8 heads, ffn 1408, vocab 256 untied, 8 sequences a step: forward, backward,
clipping by the global norm and AdamW. f32, and f32 weights under BF16 autocast. A figure to compare
with, no part of the tests. Where PyTorch was built with the reference BLAS ("blas": "generic", as
Debian's is) its f32 products are not worth comparing with; BF16 ones go through oneDNN in any case.

With --octet PROGRAM the two take turns, --rounds times: PyTorch's BF16 step, then the bench of the
program's recipes at the same sizes and threads. "ratio" is how many times as many tokens a second
the program makes, by the medians.

With --octet PROGRAM --decode FOLDER: tokens a second of T5-base's shape (220 M random weights, which
are written to FOLDER and taken away again), greedy and by --beams, by transformers and by the
program, in turns, and how many texts have the same tokens. Loading is not counted.

Usage: /usr/bin/python3 tools/torch_baseline.py [--threads N] [--seq N] [--steps N] [--warmup N]
                                                [--octet PROGRAM [--recipes NAMES] [--rounds N]]
                                                [--decode FOLDER [--dtype f32|bf16] [--beams 1,4]]
"""
import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F

import make_goldens

SHAPE = {**make_goldens.TINY, "kind": "llama", "hidden": 512, "layers": 8, "heads": 8,
         "kv_heads": 8, "head_dim": 64, "ffn": 1408, "vocab": 256, "batch": 8, "seq": 256}
STD = 0.02


def make_parameters(generator):
    return {name: torch.nn.Parameter(torch.randn(shape, generator=generator) * STD
                                     if len(shape) == 2 else torch.ones(shape))
            for name, shape in make_goldens.parameter_shapes(SHAPE).items()}


def make_optimizer(parameters):
    decays = [p for n, p in parameters.items() if make_goldens.decays(n, p.shape)]
    rest = [p for n, p in parameters.items() if not make_goldens.decays(n, p.shape)]
    return torch.optim.AdamW([{"params": decays, "weight_decay": 0.1},
                              {"params": rest, "weight_decay": 0.0}],
                             lr=1e-3, betas=(0.9, 0.95), eps=1e-8)


def train_step(parameters, optimizer, generator, bf16):
    n_rows = SHAPE["batch"] * SHAPE["seq"]
    tokens = torch.randint(SHAPE["vocab"], (n_rows,), generator=generator)
    labels = torch.randint(SHAPE["vocab"], (n_rows,), generator=generator)
    cast = torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else contextlib.nullcontext()
    with cast:
        logits = make_goldens.rotary_decoder(parameters, tokens, SHAPE)
    loss = F.cross_entropy(logits.float(), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
    optimizer.step()
    return loss.item()


def measure(name, args):
    generator = torch.Generator().manual_seed(1)
    parameters = make_parameters(generator)
    optimizer = make_optimizer(parameters)
    times, loss = [], 0.0
    for step in range(args.warmup + args.steps):
        start = time.perf_counter()
        loss = train_step(parameters, optimizer, generator, bf16=name == "bf16")
        if step >= args.warmup:
            times.append(time.perf_counter() - start)
    seconds = statistics.median(times)
    return {"name": name, "step_ms": round(seconds * 1e3, 1), "last_loss": round(loss, 4),
            "tokens_per_s": round(SHAPE["batch"] * SHAPE["seq"] / seconds, 1)}


def bench_octet(args):
    """Tokens a second by recipe, measured by the program."""
    command = [args.octet, "bench", "step", "--json", "--quiet", "--recipes", args.recipes,
               "--rounds", str(args.steps), "--threads", str(args.threads),
               "--set", f"model.seq={SHAPE['seq']}", "--set", f"train.batch={SHAPE['batch']}"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {row["name"].removeprefix("step "): row["value"]
            for row in rows if row["unit"] == "tokens/s"}


def compare(args):
    torch_speeds, octet_speeds = [], {}
    for _ in range(args.rounds):
        torch_speeds.append(measure("bf16", args)["tokens_per_s"])
        for recipe, speed in bench_octet(args).items():
            octet_speeds.setdefault(recipe, []).append(speed)
    baseline = statistics.median(torch_speeds)
    rows = [{"name": "torch bf16", "tokens_per_s": baseline, "ratio": 1.0}]
    for recipe, speeds in octet_speeds.items():
        speed = statistics.median(speeds)
        rows.append({"name": f"octet {recipe}", "tokens_per_s": round(speed, 1),
                     "ratio": round(speed / baseline, 2)})
    return rows


# Sources at a time, tokens of the longest, new tokens of each text, and T5-base's vocabulary.
DECODE = {"texts": 4, "source": 24, "new": 48, "vocab": 32128}


def write_t5(folder):
    """T5-base with small random embeddings, so that layers choose the tokens, and a word for each id."""
    import transformers
    torch.manual_seed(1)
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=DECODE["vocab"], d_model=768, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0))
    with torch.no_grad():
        model.shared.weight.mul_(0.05)
    model.save_pretrained(folder)
    vocab = {"<pad>": 0, "</s>": 1, "<unk>": 2, **{f"w{i}": i for i in range(3, DECODE["vocab"])}}
    added = [{"id": i, "content": name, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False} for name, i in list(vocab.items())[:3]]
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    processor = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, end],
                 "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}, end],
                 "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                 "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": processor, "decoder": None,
                 "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)


def decode_by_transformers(model, sources, beams):
    """New ids of each source, without the end of the text, and tokens a second."""
    longest = max(map(len, sources)) + 1
    ids = torch.tensor([row + [1] + [0] * (longest - 1 - len(row)) for row in sources])
    mask = torch.tensor([[1] * (len(row) + 1) + [0] * (longest - 1 - len(row)) for row in sources])
    start = time.perf_counter()
    with torch.inference_mode():
        rows = model.generate(input_ids=ids, attention_mask=mask, num_beams=beams, do_sample=False,
                              max_new_tokens=DECODE["new"]).tolist()
    seconds = time.perf_counter() - start
    texts = [row[1:row.index(1, 1)] if 1 in row[1:] else row[1:] for row in rows]
    return texts, sum(map(len, texts)) / seconds


def decode_by_octet(args, path, beams):
    recipe = "fp32" if args.dtype == "f32" else "bf16"
    run = subprocess.run([args.octet, "generate", "--model", args.decode, "--sources", path, "--beams", str(beams),
                          "--max-tokens", str(DECODE["new"]), "--batch", str(DECODE["texts"]), "--json", "--recipe", recipe,
                          "--threads", str(args.threads)], check=True, capture_output=True, text=True)
    return ([row["ids"] for row in json.loads(run.stdout)],
            float(re.search(r"([0-9.]+) tokens/s", run.stderr).group(1)))


def compare_decoding(args):
    import transformers
    write_t5(args.decode)
    dtype = torch.float32 if args.dtype == "f32" else torch.bfloat16
    model = transformers.T5ForConditionalGeneration.from_pretrained(args.decode, dtype=dtype).eval()
    generator = torch.Generator().manual_seed(3)
    sources = [torch.randint(3, DECODE["vocab"], (DECODE["source"] - 1 - 2 * (i % 3),), generator=generator).tolist()
               for i in range(DECODE["texts"])]
    path = os.path.join(args.decode, "sources.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(" ".join(f"w{i}" for i in row) + "\n" for row in sources)
    rows = []
    for beams in map(int, args.beams.split(",")):
        theirs, ours, same = [], [], 0
        for _ in range(args.rounds):
            texts, speed = decode_by_transformers(model, sources, beams)
            theirs.append(speed)
            own_texts, speed = decode_by_octet(args, path, beams)
            ours.append(speed)
            same = sum(a == b for a, b in zip(texts, own_texts))
        ratios = sorted(b / a for a, b in zip(theirs, ours))
        rows.append({"beams": beams, "dtype": args.dtype, "transformers": round(statistics.median(theirs), 1),
                     "octet": round(statistics.median(ours), 1), "ratio": round(statistics.median(ratios), 2),
                     "ratios": [round(r, 2) for r in ratios], "same_texts": same, "texts": len(sources)})
    shutil.rmtree(args.decode)
    return {"transformers": transformers.__version__, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--seq", type=int, default=SHAPE["seq"])
    parser.add_argument("--octet", help="program to compare with")
    parser.add_argument("--recipes", default="bf16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--decode", help="a folder for a model, which is taken away again")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--beams", default="1,4")
    args = parser.parse_args()
    SHAPE["seq"] = args.seq
    torch.set_num_threads(args.threads)
    if args.decode:
        return print(json.dumps({"torch": torch.__version__, "threads": args.threads, **compare_decoding(args)}))
    params = sum(torch.Size(s).numel() for s in make_goldens.parameter_shapes(SHAPE).values())
    rows = compare(args) if args.octet else [measure(name, args) for name in ("f32", "bf16")]
    blas = re.findall(r"BLAS_INFO=(\w+)", torch.__config__.show())
    print(json.dumps({"torch": torch.__version__, "blas": blas[0] if blas else "unknown",
                      "threads": args.threads, "seq": args.seq, "params": params, "rows": rows}))


if __name__ == "__main__":
    main()
