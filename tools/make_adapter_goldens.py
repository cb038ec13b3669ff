#!/usr/bin/env python3
"""Writes tests/golden/adapters/adapters.json: adapters' folders as PEFT writes them, and what it computes with them.

    tools/make_adapter_goldens.py

Weights of bases and adapters are a function of a tensor's name and an element's place (weights_of, make_folder_goldens.py),
so that none is stored; "same" are names that are drawn as others. The file holds the bases' config.json and tensors' shapes, of each case its base,
adapter_config.json and tensors' shapes, of the logits of `tokens` every 7th number, and of those that train as they are
every 7th number of each gradient of the cross entropy with the token that follows in the row. Needs torch, transformers, peft
and safetensors (2.15, 5.24.0 and 0.21.2 made the file).
"""
import json
import pathlib
import tempfile

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from make_folder_goldens import weights_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH, SEQ, VOCAB, EVERY = 2, 7, 40, 7
SMALL = dict(vocab_size=VOCAB, bos_token_id=1, eos_token_id=2)
LLAMA = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
             max_position_embeddings=64, **SMALL)
BASES = {"llama_tied": transformers.LlamaConfig(tie_word_embeddings=True, **LLAMA),
         "llama": transformers.LlamaConfig(tie_word_embeddings=False, attention_bias=True, **LLAMA),
         "gpt2": transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=64, **SMALL)}
# What LoraConfig is given, and what is then written over in the file.
CASES = {
    "rslora with patterns": ("llama", dict(r=4, lora_alpha=6, use_rslora=True, target_modules=["q_proj", "v_proj", "down_proj"],
                                           rank_pattern={"down_proj": 2, r"layers\.1\.self_attn\.q_proj": 3},
                                           alpha_pattern={"layers.0.self_attn.v_proj": 9.5}), {}),
    "dora by an expression": ("llama", dict(r=3, lora_alpha=5, use_dora=True, lora_dropout=0.1,
                                            target_modules=r".*\.layers\.\d\.(self_attn\.k_proj|mlp\.(gate|up)_proj)"), {}),
    "all linears but some": ("llama_tied", dict(r=2, target_modules="all-linear", exclude_modules=["o_proj"]),
                             {"target_modules": "all-linear"}),
    "one layer and a head": ("llama_tied", dict(r=2, target_modules=["up_proj"], layers_to_transform=[1],
                                                layers_pattern="layers", modules_to_save=["lm_head"]), {}),
    "an embedding": ("llama_tied", dict(r=2, target_modules=["embed_tokens", "o_proj"]), {}),
    "a tied head": ("llama_tied", dict(r=2, target_modules=["lm_head"]), {}),
    "tied and both whole": ("llama_tied", dict(r=2, target_modules=["q_proj"], modules_to_save=["embed_tokens"],
                                               ensure_weight_tying=True), {}),
    "biases": ("llama", dict(r=2, target_modules=["q_proj"], bias="all", init_lora_weights="gaussian"), {}),
    "dora of a Conv1D": ("gpt2", dict(r=2, target_modules=["c_attn", "mlp.c_proj"], use_dora=True, use_rslora=True,
                                      fan_in_fan_out=True), {}),
    "embeddings beside the factors": ("llama", dict(r=2, target_modules=["q_proj"]), {}),
    "tied embeddings beside the factors": ("llama_tied", dict(r=2, target_modules=["q_proj"]), {}),
    "an embedding beside a head": ("llama_tied", dict(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"]), {}),
}

# Saved with embedding and head (save_embedding_layers), which are then read in the place of the base's.
WITH_EMBEDDINGS = ("embeddings beside the factors", "tied embeddings beside the factors", "an embedding beside a head")
TRAINED = ("rslora with patterns", "dora by an expression")


# Of a pair that is tied, which PEFT writes twice: drawn by the other's name.
SAME = {f"base_model.model.lm_head.{name}": "base_model.model.model.embed_tokens.weight" for name in ("modules_to_save.weight", "original_module.weight", "weight")}


def shapes(at):
    return {name: list(tensor.shape) for name, tensor in load_file(at).items()}


def put_weights(at):
    save_file({name: weights_of(SAME.get(name, name), tensor.shape) for name, tensor in load_file(at).items()}, at, metadata={"format": "pt"})


def make_base(config, at):
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(at)
    put_weights(at / "model.safetensors")
    return {"config": json.loads((at / "config.json").read_text()), "tensors": shapes(at / "model.safetensors")}


def load_base(at):
    return transformers.AutoModelForCausalLM.from_pretrained(at, dtype=torch.float32, attn_implementation="eager")


def gradients(at, base, tokens):
    """Of the mean over all tokens but each row's last; without dropout."""
    model = PeftModel.from_pretrained(load_base(base), at, is_trainable=True).eval()
    logits = model(input_ids=tokens).logits
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    return {name.replace(".default", ""): [float(f"{x:.6g}") for x in p.grad.double().flatten()[::EVERY]]
            for name, p in model.named_parameters() if p.grad is not None}


def make_case(name, folder, tokens):
    base, options, over = CASES[name]
    at = folder / name.replace(" ", "_")
    get_peft_model(load_base(folder / base), LoraConfig(task_type="CAUSAL_LM", **options)).save_pretrained(
        at, save_embedding_layers=name in WITH_EMBEDDINGS or "auto")
    put_weights(at / "adapter_model.safetensors")
    config = json.loads((at / "adapter_config.json").read_text()) | {"base_model_name_or_path": base} | over
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    (at / "adapter_config.json").write_text(json.dumps(config))
    model = PeftModel.from_pretrained(load_base(folder / base), at).eval()
    with torch.no_grad():
        logits = model(input_ids=tokens).logits.double().flatten()
    trains = {"gradients": gradients(at, folder / base, tokens)} if name in TRAINED else {}
    return {"name": name, "base": base, "config": config, **trains, "tensors": shapes(at / "adapter_model.safetensors"),
            "output": [float(f"{x:.8g}") for x in logits[::EVERY]]}


def main():
    torch.manual_seed(1)
    tokens = torch.randint(3, VOCAB, (BATCH, SEQ))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        bases = {name: make_base(config, folder / name) for name, config in BASES.items()}
        cases = [make_case(name, folder, tokens) for name in CASES]
    lines = ",\n".join(json.dumps(case) for case in cases)
    head = {"batch": BATCH, "seq": SEQ, "every": EVERY, "tokens": tokens.flatten().tolist(), "same": SAME, "bases": bases}
    text = json.dumps(head)[:-1] + ',\n"cases": [\n' + lines + "\n]}\n"
    (ROOT / "tests/golden/adapters/adapters.json").write_text(text)


if __name__ == "__main__":
    main()
