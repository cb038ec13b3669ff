#!/usr/bin/env python3
"""A model that sees pictures out of two that do not know each other: a ViT of CIFAR-10 as the tower, SmolLM2 as the decoder, and a new projector between them.

    tools/make_cifar_llava.py VIT SMOLLM2 OUT [--downsample 2] [--seed 1]

VIT is vit_cifar10.safetensors (nn.TransformerEncoder's names), SMOLLM2 a model folder (./dev model smollm2). Into OUT go
    classifier/  the ViT as it is: `octet eval --model OUT/classifier --tasks cifar10 --task-data DIR` tells how right it is
    llava/       the model to train: `octet train recipes/pictures-projector.yaml --set model.path=OUT/llava`

The tower is CLIP's with norms behind the sums (vision_config/post_norm, a key of Octet's own): the bias of patches, which CLIP has none of, is added to the
positions of patches, queries, keys and values are parted, and the classifier stays behind. All other numbers stay as they are. The token <empty_output>, which
SmolLM2 knows from notebooks alone, becomes <image>. Only the standard library.
"""

import argparse
import json
import random
import shutil
import struct
from pathlib import Path

LAYERS, WIDTH, PATCHES = 6, 128, 64
TOWER, PROJECTOR, DECODER = "vision_tower.vision_model.", "multi_modal_projector.", "language_model."
OF_LAYER = {"self_attn.out_proj": "self_attn.out_proj", "linear1": "mlp.fc1", "linear2": "mlp.fc2", "norm1": "layer_norm1", "norm2": "layer_norm2"}
SIZES = {"hidden_size": WIDTH, "intermediate_size": 256, "num_hidden_layers": LAYERS, "num_attention_heads": 8, "image_size": 32, "patch_size": 4,
         "num_channels": 3, "layer_norm_eps": 1e-5, "post_norm": True}
MEAN, STD = [0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.201]
MARK, SPARE = "<image>", "<empty_output>"


class Tensors:
    """A safetensors file: dtype, shape and place of each tensor."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            (n,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(n))
        self.begin = 8 + n
        self.all = {name: entry for name, entry in header.items() if name != "__metadata__"}

    def read(self, name):
        first, end = self.all[name]["data_offsets"]
        with open(self.path, "rb") as file:
            file.seek(self.begin + first)
            return file.read(end - first)

    def shape(self, name):
        return self.all[name]["shape"]


def put_tensors(path, tensors):
    """tensors: (name, dtype, shape, a function that gives the bytes, how many)."""
    header, at = {}, 0
    for name, dtype, shape, _, n in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, _, _, make, n in tensors:
            data = make()
            if len(data) != n:
                raise SystemExit(f"{name}: expected {n} bytes, got {len(data)}")
            file.write(data)


def f32(name, shape, data):
    return name, "F32", shape, lambda: data, len(data)


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def packed(values):
    return struct.pack(f"<{len(values)}f", *values)


def positions(vit):
    """Of the class token as they are, of patches with the bias that each patch gets."""
    rows, bias = floats(vit.read("pos_embed")), floats(vit.read("patch_embed.proj.bias"))
    return packed(rows[:WIDTH] + tuple(x + bias[i % WIDTH] for i, x in enumerate(rows[WIDTH:])))


def tower(vit):
    known = {"cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"}
    yield f32(TOWER + "embeddings.class_embedding", [WIDTH], vit.read("cls_token"))
    yield f32(TOWER + "embeddings.patch_embedding.weight", vit.shape("patch_embed.proj.weight"), vit.read("patch_embed.proj.weight"))
    yield f32(TOWER + "embeddings.position_embedding.weight", [PATCHES + 1, WIDTH], positions(vit))
    for layer in range(LAYERS):
        theirs, ours = f"transformer.layers.{layer}.", f"{TOWER}encoder.layers.{layer}."
        for end, shape in (("weight", [WIDTH, WIDTH]), ("bias", [WIDTH])):
            name = f"{theirs}self_attn.in_proj_{end}"
            known.add(name)
            data = vit.read(name)
            for i, part in enumerate("qkv"):
                n = len(data) // 3
                yield f32(f"{ours}self_attn.{part}_proj.{end}", shape, data[i * n:(i + 1) * n])
            for of_theirs, of_ours in OF_LAYER.items():
                name = f"{theirs}{of_theirs}.{end}"
                known.add(name)
                yield f32(f"{ours}{of_ours}.{end}", vit.shape(name), vit.read(name))
    others = [name for name in vit.all if name not in known and not name.startswith("mlp_head.")]
    if others:
        raise SystemExit(f"{vit.path}: expected the tensors of a ViT of {LAYERS} layers, got {others} beside them")


def projector(hidden, side, seed):
    """New weights: normal deviates of variance 1 / inputs, biases of 0, and the norm in front of squares of patches."""
    rng, width = random.Random(seed), WIDTH * side * side
    if side > 1:
        yield f32(PROJECTOR + "norm.weight", [width], packed([1.0] * width))
        yield f32(PROJECTOR + "norm.bias", [width], packed([0.0] * width))
    for name, inputs in (("linear_1", width), ("linear_2", hidden)):
        values = [rng.gauss(0, inputs**-0.5) for _ in range(hidden * inputs)]
        yield f32(f"{PROJECTOR}{name}.weight", [hidden, inputs], packed(values))
        yield f32(f"{PROJECTOR}{name}.bias", [hidden], packed([0.0] * hidden))


def decoder(text):
    for name, entry in text.all.items():
        first, end = entry["data_offsets"]
        yield DECODER + name, entry["dtype"], entry["shape"], lambda name=name: text.read(name), end - first


def renamed(node):
    """A JSON value whose texts, keys too, name the mark where they named the spare token."""
    if isinstance(node, dict):
        return {renamed(key): renamed(value) for key, value in node.items()}
    if isinstance(node, list):
        return [renamed(value) for value in node]
    return MARK if node == SPARE else node


def put_tokenizer(source, out):
    """<image> in the place of a token of its own that no text has."""
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    (token,) = [one for one in tokenizer["added_tokens"] if one["content"] == SPARE]
    token["content"] = MARK
    vocab = tokenizer["model"]["vocab"]
    if SPARE in vocab:
        vocab[MARK] = vocab.pop(SPARE)
    (out / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    config = source / "tokenizer_config.json"
    if config.exists():
        put_json(out / config.name, renamed(json.loads(config.read_text(encoding="utf-8"))))
    for name in ("generation_config.json", "chat_template.jinja"):
        if (source / name).exists():
            shutil.copyfile(source / name, out / name)
    return token["id"]


def put_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def put_classifier(vit_file, out):
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(vit_file, out / "model.safetensors")
    labels = {str(i): str(i) for i in range(10)}
    put_json(out / "config.json", {"architectures": ["ViTForImageClassification"], "model_type": "vit", "mlp_relu": True, "fused_qkv": True,
                                   "id2label": labels, **SIZES})
    put_json(out / "preprocessor_config.json", {"image_mean": MEAN, "image_std": STD})


def put_llava(vit, source, out, args):
    out.mkdir(parents=True, exist_ok=True)
    text = Tensors(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    image_token = put_tokenizer(source, out)
    put_json(out / "config.json", {
        "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "text_config": config, "image_token_index": image_token,
        "tie_word_embeddings": config["tie_word_embeddings"], "vision_feature_layer": -1, "vision_feature_select_strategy": "default",
        "projector_downsample": args.downsample, "vision_config": {"model_type": "clip_vision_model", "hidden_act": "relu", **SIZES}})
    put_json(out / "preprocessor_config.json", {
        "image_processor_type": "DeiTImageProcessor", "do_resize": True, "size": {"height": 32, "width": 32}, "resample": 3, "do_center_crop": True,
        "crop_size": {"height": 32, "width": 32}, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": MEAN, "image_std": STD})
    put_tensors(out / "model.safetensors", [*tower(vit), *projector(config["hidden_size"], args.downsample, args.seed), *decoder(text)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vit", type=Path)
    parser.add_argument("smollm2", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--downsample", type=int, default=2, help="so many patches a side become one row of the decoder")
    parser.add_argument("--seed", type=int, default=1, help="of the projector")
    args = parser.parse_args()
    put_classifier(args.vit, args.out / "classifier")
    put_llava(Tensors(args.vit), args.smollm2, args.out / "llava", args)


if __name__ == "__main__":
    main()
