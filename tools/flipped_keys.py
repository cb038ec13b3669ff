#!/usr/bin/env python3
"""Every key of config.json at other values: what transformers computes then, octet.load must compute too, refuse, or warn of.
`./dev parity --flipped-keys` runs it.

    flipped_keys.py [CASE...]    each case of tools/parity.py, or these; lists what neither agrees nor is told, and fails

A case's keys are those that transformers saves of its configuration, in rope_parameters too, and the spellings of older
files. Each gets values near its own, other words, null, and none at all. Values that transformers refuses prove nothing.
"""
import json
import pathlib
import sys
import tempfile
import warnings

import numpy as np
import octet
import torch
import transformers

import parity

CLOSE = 2e-4  # of the largest logit; what a key changes is far more
ABSENT = object()
# Keys that say which model and which heads there are, of which other tests are.
OTHERS = {"architectures", "dtype", "id2label", "label2id", "model_type", "problem_type", "torch_dtype", "transformers_version"}
ACTIVATIONS = ["silu", "gelu", "gelu_new", "relu", "relu2", "quick_gelu", "tanh", "linear"]
SCALINGS = [{"type": "linear", "factor": 2.0}, {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 8, "rope_theta": 60.0},
            {"rope_type": "dynamic", "factor": 4.0}, {"rope_theta": 33.0}, {"rope_type": "default"}]
ROPE = {"rope_type": ["default", "linear", "dynamic", "yarn", "longrope", "llama3"], "rope_theta": [77.0], "factor": [2.0, 5.0], "beta_fast": [16.0],
        "partial_rotary_factor": [0.5, 1.0], "low_freq_factor": [0.5], "high_freq_factor": [9.0], "beta_slow": [3.0], "truncate": [False],
        "original_max_position_embeddings": [4, 8, 128], "attention_factor": [0.5, 0.0], "mscale": [0.5], "mscale_all_dim": [0.5],
        "short_factor": [[1.5, 2.0]], "long_factor": [[1.5, 2.0]], "llama_4_scaling_beta": [0.3]}
OLDER = {"rope_theta": [77.0], "rope_scaling": SCALINGS, "rotary_pct": [0.5], "rotary_emb_base": [77], "partial_rotary_factor": [0.5],
         "rope_local_base_freq": [77.0], "sliding_window_pattern": [1, 2], "original_max_position_embeddings": [4], "head_dim": [4, 16],
         "num_attention_heads": [1, 4], "use_sliding_window": [True, False], "sliding_window": [0, 2], "max_window_layers": [0],
         "layer_types": [["full_attention"] * 2, ["sliding_attention"] * 2], "tie_word_embeddings": [True, False]}


def values_near(key, value):
    if isinstance(value, bool):
        return [not value, None]
    if isinstance(value, int):
        return [value + 1, value - 1, 2 * value, 0, 1, 2, None]
    if isinstance(value, float):
        return [1.7 * value + 0.1, 0.0, 1.0, None]
    if isinstance(value, str):
        return ACTIVATIONS if value in transformers.activations.ACT2FN else ["default", "layer", None]
    if isinstance(value, list):
        return [value[::-1], value[:1] * len(value), None]
    return [True, 1, 2, 0.5, 0.0] if value is None else []


def changes_of(config):
    """Lists of a path of keys and a value."""
    for key in sorted(set(config) | set(OLDER)):
        if key in OTHERS:
            continue
        value = config.get(key)
        near = values_near(key, value) if key in config else []
        for other in near + OLDER.get(key, []) + (SCALINGS if key == "rope_parameters" else []) + [ABSENT]:
            yield [key], other
        if key != "rope_parameters" or not value:
            continue
        for layers in (["full_attention"], ["sliding_attention"]) if "full_attention" in value else ([],):
            for inner, others in ROPE.items():
                for other in [*others, ABSENT]:
                    yield [key, *layers, inner], other


def changed(config, path, value):
    config = json.loads(json.dumps(config))
    at = config
    for key in path[:-1]:
        at = at[key]
    at.pop(path[-1], None)
    if value is not ABSENT:
        at[path[-1]] = value
    return config


def octet_says(folder, tokens):
    """Logits; None where it refuses or warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return octet.load(folder, tokenizer="bytes").logits(tokens)
        except (octet.Error, UserWarning):
            return None


def transformers_says(folder, tokens):
    """Logits; None where it refuses."""
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        return parity.logits_of(model, torch.from_numpy(tokens).long()).numpy()
    except Exception:  # noqa: BLE001 - whatever it says of a value
        return None


def silent(name):
    """Changes of this case that transformers takes, and octet.load takes otherwise."""
    model, generator = parity.model_of(name)
    tokens = torch.randint(model.config.vocab_size, (parity.BATCH, parity.SEQ), generator=generator).int().numpy()
    with tempfile.TemporaryDirectory(prefix="flipped-") as scratch:
        folder = pathlib.Path(scratch)
        model.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text())
        found, n = [], 0
        for path, value in changes_of(config):
            other = changed(config, path, value)
            if other == config:
                continue
            (folder / "config.json").write_text(json.dumps(other))
            n += 1
            ours = octet_says(folder, tokens)
            theirs = transformers_says(folder, tokens) if ours is not None else None
            if theirs is not None and not np.abs(ours - theirs).max() <= CLOSE * np.abs(theirs).max():
                found.append(f"{'/'.join(path)} {'absent' if value is ABSENT else json.dumps(value)}")
    print(f"{name}: {n} changes, {len(found)} silent", flush=True)
    return found


def main():
    transformers.logging.set_verbosity(50)
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    names = sys.argv[1:] or [name for name in parity.CASES if name != "llama_dynamic"]  # whose texts are as long as it takes
    found = [f"{name}: {change}" for name in names for change in silent(name)]
    print("\n".join(found))
    if found:
        sys.exit(f"flipped_keys: {len(found)} changes are computed otherwise, and not told")


if __name__ == "__main__":
    main()
