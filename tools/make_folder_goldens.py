#!/usr/bin/env python3
"""Writes tests/golden/folders/folders.json: a folder of each kind of model, and what transformers computes of it.

    tools/make_folder_goldens.py

The folders are those that tools/round_trip_models.py starts from, whose config.json is off its defaults in every field,
but for their weights: a function of a tensor's name and an element's place, here and in tests/golden/folders, so that
none is stored. The file holds, of each, config.json, the tensors' shapes, inputs by Octet's names (null: drawn as weights
are), and of the output's rows (null: all) every `every`-th number. Needs torch, transformers and safetensors (5.24.0
made the file).
"""
import json
import math
import pathlib
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

import round_trip_models as models

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH, SEQ, SHOWN = 2, 9, 60
KINDS = [*models.DECODERS, "bert_masked", "roberta_classes", "distilbert_multi_label", "vit_classes", "deit_classes"]


def weights_of(name, shape):
    """From -0.25 to 0.25, of vectors around 0.5, exact in f32."""
    i = torch.arange(math.prod(shape), dtype=torch.int64)
    value = ((i * 7919 + i * i * 31 + len(name) * 104729) % 2003 - 1001).double() / 4004
    return (value + (0.5 if len(shape) == 1 else 0)).float().reshape(shape)


def inputs_of(config):
    if hasattr(config, "image_size"):
        pixels = weights_of("pixels", (BATCH, config.num_channels, config.image_size, config.image_size))
        return {"pixel_values": pixels}, {"pixels": None}
    tokens = torch.randint(6, config.vocab_size, (BATCH, SEQ))
    positions = torch.arange(SEQ).repeat(BATCH, 1)
    if config.model_type not in ("bert", "roberta", "distilbert"):
        return {"input_ids": tokens}, {"tokens": tokens, "positions": positions}
    held = torch.tensor([SEQ, 5])
    given = {"input_ids": tokens, "attention_mask": (torch.arange(SEQ)[None] < held[:, None]).long()}
    inputs = {"tokens": tokens, "positions": positions, "key_ends": held[:, None].expand(-1, SEQ)}
    if config.model_type != "distilbert":
        given["token_type_ids"] = inputs["token_types"] = torch.randint(0, config.type_vocab_size, (BATCH, SEQ))
    if config.model_type == "roberta":  # those of padding differ, and are no one's business
        given["position_ids"] = positions + config.pad_token_id + 1
    return given, inputs


def make(name, at):
    case = models.CASES[name]
    case.write(at)
    stored = {key: weights_of(key, tensor.shape) for key, tensor in load_file(at / "model.safetensors").items()}
    save_file(stored, at / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((at / "config.json").read_text())
    model = getattr(transformers, config["architectures"][0]).from_pretrained(at, dtype=torch.float32, attn_implementation="eager").eval()
    torch.manual_seed(1)
    given, inputs = inputs_of(model.config)
    with torch.no_grad():
        output = model(**given).logits
    rows = None  # of tokens, without padding
    if output.dim() == 3 and "key_ends" in inputs:
        rows = given["attention_mask"].flatten().nonzero().flatten().tolist()
        output = output.flatten(0, 1)[rows]
    flat = output.double().flatten()
    every = max(1, -(-len(flat) // SHOWN))
    return {"name": name, "config": config, "rows": rows, "every": every, "output": [float(f"{x:.7g}") for x in flat[::every]],
            "inputs": {key: value if value is None else value.flatten().tolist() for key, value in inputs.items()},
            "tensors": {key: list(tensor.shape) for key, tensor in stored.items()}}


def main():
    cases = []
    for name in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            cases.append(make(name, pathlib.Path(folder) / "model"))
    at = ROOT / "tests/golden/folders/folders.json"
    at.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    at.write_text(f'{{"batch":{BATCH},"seq":{SEQ},"cases":[\n{lines}\n]}}\n')
    print(len(cases), "folders,", at.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
