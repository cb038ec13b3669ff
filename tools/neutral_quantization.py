"""The proofs of quantization_config's neutral keys (tools/neutral_keys.py): a tiny Llama whose linears are in E4M3, one
scale a row, with inputs that are quantized a token, as compressed-tensors stores it, loaded by transformers."""
import json
import pathlib
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

import parity

ARGUMENTS = {"num_bits": 8, "type": "float", "symmetric": True, "group_size": None, "strategy": "channel", "block_structure": None,
             "dynamic": False, "actorder": None, "observer": "minmax", "observer_kwargs": {}}
INPUTS = ARGUMENTS | {"strategy": "token", "dynamic": True, "observer": None}
CONFIG = {"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed", "ignore": ["lm_head"],
          "kv_cache_scheme": None, "config_groups": {"group_0": {"targets": ["Linear"], "weights": ARGUMENTS, "input_activations": INPUTS,
                                                                 "output_activations": None, "format": "float-quantized"}}}
# "group/KEY": of a group's weights and of its inputs
NEUTRAL = {"global_compression_ratio": (1.5, 3.0), "version": ("0.1.0", "9.0"), "use_optimized_inference": (True, False),
           "group/observer": ("mse", "static_minmax"), "group/observer_kwargs": ({"maxshrink": 0.2}, {"grid": 5}),
           "group/zp_dtype": ("torch.int8", "torch.float8_e4m3fn")}


def write(at):
    model, generator = parity.model_of("llama")
    model.save_pretrained(at)
    tensors = load_file(at / "model.safetensors")
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        w = tensors[name]
        scale = w.abs().amax(1, keepdim=True) / 448
        tensors[name] = (w / scale).to(torch.float8_e4m3fn)
        tensors[name + "_scale"] = scale
    save_file(tensors, at / "model.safetensors", metadata={"format": "pt"})
    return torch.randint(model.config.vocab_size, (parity.BATCH, parity.SEQ), generator=generator)


def run(at, changes, tokens):
    config = json.loads((at / "config.json").read_text())
    quantization = json.loads(json.dumps(CONFIG))
    for key, value in changes.items():
        if key.startswith("group/"):
            for part in ("weights", "input_activations"):
                quantization["config_groups"]["group_0"][part][key[len("group/"):]] = value
        else:
            quantization[key] = value
    (at / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
    model = transformers.AutoModelForCausalLM.from_pretrained(at, dtype=torch.float32, attn_implementation="eager").eval()
    return parity.logits_of(model, tokens)


def prove():
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        tokens = write(at)
        expected = run(at, {}, tokens)
        for key, values in NEUTRAL.items():
            far, why = 0.0, ""
            for value in values:
                try:
                    moved = (run(at, {key: value}, tokens) - expected).abs().max().item()
                    far, why = max(far, moved), f"outputs by {moved:.2g}"
                except Exception as error:  # noqa: BLE001 - whatever the reference says of a value
                    far, why = float("inf"), str(error).splitlines()[0][:100]
            yield {"key": key.removeprefix("group/"), "values": " | ".join(map(json.dumps, values)), "given": "", "holds": "outputs", "models": "llama",
                   "proof": "same" if far == 0 else "", "why": why}


# Of quant_method fp8: a module is what its tensors are, whatever these lists say of it.
FP8_CONFIG = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [2, 4], "dequantize": True}
FP8_NEUTRAL = {key: (["model.layers.0.mlp.up_proj"], ["lm_head", "q_proj"])
               for key in ("modules_to_not_convert", "ignored_layers", "modules_to_convert")}


def write_fp8(at):
    """Linears in E4M3 with a scale for each block of 2 x 4."""
    model, generator = parity.model_of("llama")
    model.save_pretrained(at)
    tensors = load_file(at / "model.safetensors")
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        w = tensors[name]
        blocks = w.reshape(w.shape[0] // 2, 2, w.shape[1] // 4, 4)
        scale = blocks.abs().amax((1, 3)) / 448
        tensors[name] = (blocks / scale[:, None, :, None]).reshape(w.shape).to(torch.float8_e4m3fn)
        tensors[name + "_scale_inv"] = scale
    save_file(tensors, at / "model.safetensors", metadata={"format": "pt"})
    return torch.randint(model.config.vocab_size, (parity.BATCH, parity.SEQ), generator=generator)


def prove_fp8():
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        tokens = write_fp8(at)
        config = json.loads((at / "config.json").read_text())

        def logits(changes):
            (at / "config.json").write_text(json.dumps(config | {"quantization_config": FP8_CONFIG | changes}))
            model = transformers.AutoModelForCausalLM.from_pretrained(at, dtype=torch.float32, attn_implementation="eager").eval()
            return parity.logits_of(model, tokens)

        expected = logits({})
        for key, values in FP8_NEUTRAL.items():
            far = max((logits({key: value}) - expected).abs().max().item() for value in values)
            yield {"key": key, "values": " | ".join(map(json.dumps, values)), "given": "dequantize: true", "holds": "outputs", "models": "llama",
                   "proof": "same" if far == 0 else "", "why": f"outputs by {far:.2g}"}


READERS = {"quantization_config": prove, "quantization_config, fp8": prove_fp8}
