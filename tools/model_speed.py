#!/usr/bin/env python3
"""Times how fast a model folder's weights reach the device, and how fast a run is written as a model folder.

  tools/model_speed.py [recipes/llama-2-7b.yaml] [--device cuda] [--set optim.master=bf16_sr] ...

Makes a Llama folder of random BF16 weights, of the run file's shape, in shards of --shard-gb. Loading is timed by
`octet train` itself (its line "loaded ..."), with the files in the system's cache, and with --cold once more with
the cache dropped, and once as the frozen base of adapters. The run of one step is saved, and `octet convert` writes it as BF16, beside the disk's own speed
(`dd ... conv=fdatasync`, and O_DIRECT). Needs 3.2 times the weights free in --folder, which is removed at the end.
Prints one line each: what, seconds, bytes, GB/s, peak of host memory.
"""
import argparse
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import time

from checkpoint_speed import disk_rates, peak_of


def shape_of(path):
    """The integers below `model:` of a run file."""
    with open(path, encoding="utf-8") as file:
        return {key: int(value) for key, value in re.findall(r"^  (\w+): (\d+)\b", file.read(), re.MULTILINE)}


def tensors_of(s):
    hidden, ffn = s["hidden"], s["ffn"]
    kv = hidden // s["heads"] * s.get("kv_heads", s["heads"])
    yield "model.embed_tokens.weight", (s["vocab"], hidden)
    for i in range(s["layers"]):
        layer = f"model.layers.{i}."
        for name, rows, cols in [("self_attn.q_proj", hidden, hidden), ("self_attn.k_proj", kv, hidden),
                                 ("self_attn.v_proj", kv, hidden), ("self_attn.o_proj", hidden, hidden),
                                 ("mlp.gate_proj", ffn, hidden), ("mlp.up_proj", ffn, hidden),
                                 ("mlp.down_proj", hidden, ffn)]:
            yield f"{layer}{name}.weight", (rows, cols)
        for name in ["input_layernorm", "post_attention_layernorm"]:
            yield f"{layer}{name}.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (s["vocab"], hidden)


def n_bytes(shape):
    return 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)


def random_block(size):
    """BF16 numbers of both signs between 2^-9 and 2^-5."""
    signs_and_exponents = bytes((b & 0x80) | (0x3B + (b & 1)) for b in range(256))
    block = bytearray(size)
    block[0::2] = os.urandom(size // 2)
    block[1::2] = os.urandom(size // 2).translate(signs_and_exponents)
    return memoryview(bytes(block))


def write_shard(path, tensors, block, where):
    header, at = {}, 0
    for name, shape in tensors:
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + n_bytes(shape)]}
        at += n_bytes(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        while at > 0:
            begin = 2 * where.randrange(len(block) // 4)
            piece = block[begin:begin + min(at, len(block) // 2)]
            at -= out.write(piece)


def write_model(folder, shape, shard_bytes):
    shards, filled = [[]], 0
    for name, dims in tensors_of(shape):
        if filled + n_bytes(dims) > shard_bytes and shards[-1]:
            shards.append([])
            filled = 0
        shards[-1].append((name, dims))
        filled += n_bytes(dims)
    block, where, weight_map = random_block(64 << 20), random.Random(1), {}
    for i, tensors in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_shard(os.path.join(folder, file), tensors, block, where)
        weight_map.update({name: file for name, _ in tensors})
    total = sum(n_bytes(dims) for _, dims in tensors_of(shape))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, out)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as out:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": shape["hidden"],
                   "num_hidden_layers": shape["layers"], "num_attention_heads": shape["heads"],
                   "num_key_value_heads": shape.get("kv_heads", shape["heads"]), "intermediate_size": shape["ffn"],
                   "vocab_size": shape["vocab"], "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
                   "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu",
                   "torch_dtype": "bfloat16"}, out)
    return total


def report(what, seconds, size, peak):
    print(f"{what}: {seconds:.2f} s, {size} bytes, {size / seconds / 1e9:.2f} GB/s, "
          f"peak of host memory {peak / (1 << 30):.2f} GiB", flush=True)


def load(command, size, what):
    text, peak = peak_of(command)
    match = re.search(r"loaded .* in ([0-9.]+) s", text)
    if match is None:
        sys.exit(f"model_speed: expected a line 'loaded ...', got:\n{text}")
    report(what, float(match.group(1)), size, peak)


def drop_caches():
    return subprocess.run("sync; echo 3 > /proc/sys/vm/drop_caches", shell=True, stderr=subprocess.DEVNULL).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default="recipes/llama-2-7b.yaml")
    parser.add_argument("--program", default="build/octet")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folder", default="build/model_speed")
    parser.add_argument("--seq", type=int, default=2048)
    parser.add_argument("--shard-gb", type=float, default=5)
    parser.add_argument("--disk-gib", type=int, default=4)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()

    model, run, export = (os.path.join(args.folder, name) for name in ["model", "run", "export"])
    os.makedirs(model, exist_ok=True)
    write_rate, read_rate = disk_rates(args.folder, args.disk_gib)
    print(f"disk: write {write_rate / 1e9:.2f} GB/s, read {read_rate / 1e9:.2f} GB/s", flush=True)
    size = write_model(model, shape_of(args.config), args.shard_gb * 1e9)
    text = os.path.join(args.folder, "text.txt")
    with open(text, "w", encoding="ascii") as out:
        out.write("".join(random.Random(1).choice("abcdefgh \n") for _ in range(1 << 20)))
    # The run file without its shape, which is the folder's.
    config = os.path.join(args.folder, "run.yaml")
    with open(args.config, encoding="utf-8") as source, open(config, "w", encoding="utf-8") as out:
        shaped = re.search(r"^model:\n(  .*\n)+", source.read(), re.MULTILINE)
        out.write(shaped.string.replace(shaped.group(0), f"model: {{path: {model}, seq: {args.seq}}}\n"))
    command = [args.program, "train", config, "--device", args.device, "--overwrite"]
    for item in ["data.tokenizer=bytes", f"data.train=[{text}]", "data.val=[]",
                 "data.val_fraction=0", "train.batch=1", "train.steps=1", "optim.warmup=0", "train.save_every=0",
                 "train.tensorboard=false", f"out={run}", *args.set]:
        command += ["--set", item]
    load(command, size, "load, files in the system's cache")
    if args.cold and drop_caches():
        load(command, size, "load, files on the disk")
    adapted = [word.replace(f"out={run}", f"out={run}-adapters") for word in command]
    for item in ["lora.rank=16", "lora.base=e4m3", "train.export=none"]:
        adapted += ["--set", item]
    load(adapted, size, "load as a frozen base in E4M3, with adapters")
    for name in os.listdir(model):
        if name.endswith(".safetensors"):
            os.remove(os.path.join(model, name))
    began = time.time()
    _, peak = peak_of([args.program, "convert", run, export, "--dtype", "bf16", "--max-shard", "5GB"])
    seconds = time.time() - began
    written = sum(os.path.getsize(os.path.join(export, name)) for name in os.listdir(export))
    report("export", seconds, written, peak)
    print(f"export: {written / seconds / write_rate:.2f} of the disk's rate", flush=True)
    shutil.rmtree(args.folder)


if __name__ == "__main__":
    main()
