#!/usr/bin/env python3
"""Parity with PyTorch and transformers, in both directions. `./dev parity` runs it in an environment of its own.

  parity.py versions          of the packages
  parity.py goldens FOLDER    writes FOLDER/hf_NAME.safetensors for every case below: a tiny random model of
                              transformers in f32, with weights ("w:NAME", which BF16 holds exactly), tokens, labels
                              (-1: not counted), logits, loss, all gradients ("g:NAME") and the parameters after one
                              AdamW step from zero moments ("w1:NAME"); its metadata hold the config.json
  parity.py compare FOLDER    makes the goldens anew and says how far those in FOLDER are from them
  parity.py exports OCTET [FOLDER]  `OCTET convert` of each model in each dtype, loaded by transformers: its logits, which
                              stay in FOLDER beside the models
  parity.py runs OCTET [FOLDER]  the same of models that OCTET trains from their first weights; and its log-likelihoods
  parity.py reads FOLDER      these models loaded by another version of transformers, 4 or 5: the same logits
  parity.py ptq OCTET         `OCTET ptq` in each of the ecosystem's layouts, loaded by transformers and compressed-tensors:
                              negative log-likelihood, activations quantized as well
  parity.py adapters OCTET    adapters that OCTET trains, loaded by PEFT: its logits against those of the merged model
  parity.py tasks OCTET DATA [MODEL]  `OCTET eval` of a tiny random Llama on the first documents of each task, its tokenizer one
                              of DATA: each request's log-likelihood against lm-eval's, and the choices that follow; or of
                              MODEL, a folder of a model of bytes
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.nn.functional as F
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

ADAMW = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
BATCH, SEQ = 2, 11
IS_4 = transformers.__version__.startswith("4.")

TINY = {"hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": 37, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False}

YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16}
WINDOW = {"use_sliding_window": True, "sliding_window": 4}

# name -> model_type and what differs from TINY
CASES = {
    "llama": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "llama_linear": {"model_type": "llama", "num_hidden_layers": 1,
                     "rope_parameters": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 4.0}},
    "llama_llama3": {"model_type": "llama", "num_hidden_layers": 1, "head_dim": 8, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
    "llama_yarn": {"model_type": "llama", "num_hidden_layers": 1, "head_dim": 16, "rope_parameters": YARN},
    "llama_dynamic": {"model_type": "llama", "num_hidden_layers": 1, "max_position_embeddings": 8,
                      "rope_parameters": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0}},
    "mistral": {"model_type": "mistral", "sliding_window": 4},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen2_window": {"model_type": "qwen2", "max_window_layers": 1, **WINDOW},
    "qwen3": {"model_type": "qwen3", "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4},
    "qwen3_yarn": {"model_type": "qwen3", "num_hidden_layers": 1, "head_dim": 8, "attention_bias": True,
                   "rope_parameters": {**YARN, "truncate": False, "beta_fast": 8.0, "beta_slow": 2.0}},
    "olmo": {"model_type": "olmo", "clip_qkv": 0.5, "pad_token_id": None, "eos_token_id": 2},
    "olmo2": {"model_type": "olmo2", "pad_token_id": None, "eos_token_id": 2},
    "smollm2": {"model_type": "llama", "tie_word_embeddings": True, "num_attention_heads": 3,
                "head_dim": 4},
    "smollm3": {"model_type": "smollm3", "no_rope_layer_interval": 2, "pad_token_id": None, "bos_token_id": 1,
                "eos_token_id": 2},
    "gpt2": {"model_type": "gpt2", "n_embd": 12, "n_inner": 28, "n_layer": 2, "n_head": 2, "n_positions": 16,
             "vocab_size": 37, "bos_token_id": 1, "eos_token_id": 2, "resid_pdrop": 0, "embd_pdrop": 0,
             "attn_pdrop": 0},
    "pythia": {"model_type": "gpt_neox", "hidden_size": 16, "intermediate_size": 12, "vocab_size": 19, "num_hidden_layers": 2,
               "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.25}},
    "neox_in_series": {"model_type": "gpt_neox", "hidden_size": 16, "num_hidden_layers": 1, "use_parallel_residual": False,
                       "attention_bias": False, "hidden_act": "gelu_new", "rope_parameters": {
                           "rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}},
}

# Families that transformers 4 has not, or names otherwise: each with every field that it has away from its default.
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
SMALL = {"hidden_size": 8, "intermediate_size": 12, "vocab_size": 19, "max_position_embeddings": 48, "rms_norm_eps": 1e-3} | TOKENS
ONE = SMALL | {"num_hidden_layers": 1}
THETA = {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}}
BY_LAYER = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
SCALED_BY_LAYER = {"rope_parameters": {
    "full_attention": {"rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 8},
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}}
GEMMA4 = {"model_type": "gemma4_text", "head_dim": 4, "global_head_dim": 8, "vocab_size_per_layer_input": 19, "sliding_window": 4,
          "rope_parameters": {
              "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 300.0},
              "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}}
QWEN35 = {"model_type": "qwen3_5_text", "head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4,
          "linear_value_head_dim": 3, "linear_conv_kernel_dim": 3,
          "rope_parameters": {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.5}}
HALF = {"head_dim": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.75}}
NEWER_CASES = {
    "llama_longrope": ONE | {"model_type": "llama", "hidden_act": "gelu", "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 300.0, "factor": 6.0, "original_max_position_embeddings": 8,
        "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.5]}},
    "llama_mscale": ONE | {"model_type": "llama", "hidden_act": "relu2", "rope_parameters": YARN | {"mscale": 0.5, "mscale_all_dim": 1.5}},
    "mistral_full": ONE | THETA | {"model_type": "mistral", "sliding_window": None, "hidden_act": "gelu_new", "head_dim": 8},
    "qwen2_layers": SMALL | THETA | BY_LAYER | {"model_type": "qwen2", "use_sliding_window": True},
    "qwen3_layers": SMALL | THETA | BY_LAYER | {"model_type": "qwen3", "use_sliding_window": True, "head_dim": 4, "hidden_act": "relu"},
    "gemma": ONE | THETA | {"model_type": "gemma", "head_dim": 6, "attention_bias": True, "tie_word_embeddings": False,
                            "hidden_act": "gelu"},
    "gemma2": SMALL | THETA | BY_LAYER | {
        "model_type": "gemma2", "head_dim": 6, "attention_bias": True, "tie_word_embeddings": False, "hidden_activation": "silu",
        "query_pre_attn_scalar": 12, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 8.0},
    "gemma3": SMALL | BY_LAYER | {
        "model_type": "gemma3_text", "head_dim": 6, "attention_bias": True, "hidden_activation": "gelu", "query_pre_attn_scalar": 24,
        "final_logit_softcapping": 8.0, "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 300.0, "factor": 4.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}},
    "phi3": SMALL | {"model_type": "phi3", "hidden_size": 16, "sliding_window": 4, "original_max_position_embeddings": 8,
                     "tie_word_embeddings": True, "hidden_act": "gelu", "rope_parameters": {
                         "rope_type": "longrope", "rope_theta": 300.0, "partial_rotary_factor": 0.75,
                         "short_factor": [1.0, 1.25, 1.5], "long_factor": [2.0, 3.0, 4.5]}},
    "phi3_short": ONE | {"model_type": "phi3", "original_max_position_embeddings": 16, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 300.0, "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.5]}},
    "olmo3": SMALL | BY_LAYER | SCALED_BY_LAYER | {"model_type": "olmo3", "attention_bias": True, "hidden_act": "gelu"},
    "granite": ONE | THETA | {
        "model_type": "granite", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "hidden_act": "gelu",
        "embedding_multiplier": 3.0, "attention_multiplier": 0.7, "residual_multiplier": 0.3, "logits_scaling": 2.5},
    "glm": ONE | HALF | {"model_type": "glm", "attention_bias": True, "tie_word_embeddings": True, "hidden_act": "gelu"},
    "glm4": ONE | HALF | {"model_type": "glm4", "attention_bias": False, "tie_word_embeddings": True, "hidden_act": "gelu"},
    "glm4_bias": ONE | HALF | {"model_type": "glm4"},
    "starcoder2": SMALL | THETA | {"model_type": "starcoder2", "norm_epsilon": 1e-3, "sliding_window": 4, "hidden_act": "gelu",
                                   "tie_word_embeddings": False},
    "starcoder2_plain": ONE | THETA | {"model_type": "starcoder2", "use_bias": False, "tie_word_embeddings": True},
    "ministral": SMALL | THETA | BY_LAYER | {"model_type": "ministral", "tie_word_embeddings": True, "hidden_act": "gelu", "head_dim": 6},
    "ministral3": ONE | {"model_type": "ministral3", "head_dim": 8, "sliding_window": 4, "hidden_act": "gelu", "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 4, "beta_fast": 8.0,
        "beta_slow": 2.0, "mscale": 0.5, "mscale_all_dim": 1.5, "llama_4_scaling_beta": 0.7}},
    "seed_oss": ONE | THETA | {"model_type": "seed_oss", "attention_bias": True, "attention_out_bias": True, "mlp_bias": True,
                               "tie_word_embeddings": True, "hidden_act": "gelu", "head_dim": 6},
    "arcee": ONE | THETA | {"model_type": "arcee", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "head_dim": 6},
    "nemotron": ONE | HALF | {"model_type": "nemotron", "attention_bias": True, "mlp_bias": True, "norm_eps": 1e-3,
                              "tie_word_embeddings": True},
    "cohere2": SMALL | THETA | BY_LAYER | {"model_type": "cohere2", "layer_norm_eps": 1e-3, "logit_scale": 0.7, "hidden_act": "gelu",
                                           "tie_word_embeddings": True},
    # Without rotary positions the gradient of a bias of keys is nothing but rounding: in a layer with them.
    "cohere2_bias": ONE | THETA | {"model_type": "cohere2", "attention_bias": True, "layer_types": ["sliding_attention"],
                                   "sliding_window": 4},
    "exaone4": SMALL | THETA | BY_LAYER | {"model_type": "exaone4", "tie_word_embeddings": True, "hidden_act": "gelu", "head_dim": 6},
    "opt": {**{key: SMALL[key] for key in ("hidden_size", "vocab_size", "max_position_embeddings")}, **TOKENS, "model_type": "opt",
            "ffn_dim": 12, "word_embed_proj_dim": 6, "activation_function": "gelu", "tie_word_embeddings": False},
    "opt_after": {**{key: SMALL[key] for key in ("hidden_size", "vocab_size", "max_position_embeddings")}, **TOKENS,
                  "model_type": "opt", "num_hidden_layers": 1, "ffn_dim": 12, "do_layer_norm_before": False, "enable_bias": False},
    "gemma4": SMALL | GEMMA4 | {
        "num_hidden_layers": 4, "hidden_activation": "gelu", "tie_word_embeddings": False, "attention_k_eq_v": True,
        "num_global_key_value_heads": 2, "final_logit_softcapping": 8.0, "hidden_size_per_layer_input": 4,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "num_kv_shared_layers": 2, "use_double_wide_mlp": True},
    "gemma4_plain": SMALL | GEMMA4 | {"attention_bias": True, "layer_types": ["sliding_attention", "full_attention"],
                                      "hidden_size_per_layer_input": 0},
    "qwen3_5": SMALL | QWEN35 | {"attention_bias": True, "tie_word_embeddings": True, "hidden_act": "gelu",
                                 "layer_types": ["linear_attention", "full_attention"]},
    "qwen3_5_plain": ONE | QWEN35 | {"layer_types": ["linear_attention"], "linear_num_value_heads": 2, "linear_value_head_dim": 4},
    "exaone4_full": ONE | THETA | {"model_type": "exaone4", "sliding_window": None, "layer_types": ["full_attention"]},
}
# Of vectors, where 1 makes numbers so large that the order of sums shows.
MEAN_OF = {"gemma4_text": {"q_norm": 0.25, "k_norm": 0.5, "post_feedforward_layernorm": 0.5, "post_per_layer_input_norm": 0.5},
           "qwen3_5_text": dict.fromkeys(["input_layernorm", "post_attention_layernorm", "q_norm", "k_norm"], 0.0)}
OLDER_KINDS = {case["model_type"] for case in CASES.values()}
NEWER_KINDS = {}  # of each other kind the first case, which has most of its fields
for _name, _case in NEWER_CASES.items():
    if _case["model_type"] not in OLDER_KINDS:
        NEWER_KINDS.setdefault(_case["model_type"], _name)
EPS_OF = {"starcoder2": "norm_epsilon", "nemotron": "norm_eps", "cohere2": "layer_norm_eps", "olmo": None, "opt": None}
if not IS_4:
    CASES |= NEWER_CASES


def config_of(case):
    keys = dict(case) if case["model_type"] == "gpt2" else {**TINY, **case}
    kind = keys.pop("model_type")
    if kind == "opt":
        for key in ("intermediate_size", "num_key_value_heads"):
            keys.pop(key, None)
    if kind == "gpt_neox":
        for key in ("head_dim", "num_key_value_heads", "rms_norm_eps"):
            keys.pop(key, None)
    if kind in EPS_OF:
        keys.pop("rms_norm_eps")
    return transformers.CONFIG_MAPPING[kind](**(with_older_keys(kind, keys) if IS_4 else keys))


def with_older_keys(kind, keys):
    """In transformers 4's spelling."""
    rope = keys.pop("rope_parameters", None)
    if rope is None:
        return keys
    rope = dict(rope)
    theta, share = rope.pop("rope_theta"), rope.pop("partial_rotary_factor", None)
    keys["rotary_emb_base" if kind == "gpt_neox" else "rope_theta"] = theta
    if share is not None:
        keys["rotary_pct"] = share
    if rope["rope_type"] != "default":
        keys["rope_scaling"] = rope
    return keys


def model_of(name):
    """Weights wide enough that softmax, gates and norms are far from their linear parts."""
    config = config_of(CASES[name])
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model = model.float().eval()
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    for key, w in [*model.named_parameters(), *fixed(model)]:
        noise = torch.randn(w.shape, generator=generator)
        if w.dim() == 2:
            noise = noise / config.hidden_size ** 0.5
        else:
            noise = noise * 0.2 + (0.0 if key.endswith("bias") else -2.0 if key.endswith("A_log") else MEAN_OF.get(config.model_type, {}).get(key.split(".")[-2], 1.0))
        w.data.copy_(noise.bfloat16().float())
    return model, generator


def fixed(model):
    """What files hold besides, and no training moves."""
    return [(key, w) for key, w in model.named_buffers() if key in model.state_dict()]


def parameters(model):
    """By the names that checkpoints have: in memory transformers has another for GPT-NeoX's head."""
    head = "embed_out.weight" if model.config.model_type == "gpt_neox" else "lm_head.weight"
    return [(head if key == "lm_head.weight" else key, w) for key, w in model.named_parameters()]


def decays(name, w):
    return w.dim() == 2 and not name.endswith(("embed_tokens.weight", "embed_in.weight", "wte.weight",
                                                "wpe.weight", "embed_positions.weight",
                                                "embed_tokens_per_layer.weight"))


def make(name):
    model, generator = model_of(name)
    vocab = model.config.vocab_size
    tokens = torch.randint(vocab, (BATCH, SEQ), generator=generator)
    labels = torch.randint(vocab, (BATCH * SEQ,), generator=generator)
    labels[torch.randperm(BATCH * SEQ, generator=generator)[:3]] = -1
    logits = model(tokens, use_cache=False).logits.reshape(BATCH * SEQ, vocab)
    loss = F.cross_entropy(logits, labels, ignore_index=-1)
    loss.backward()
    tensors = {"tokens": tokens.reshape(-1).int(), "labels": labels.int(), "logits": logits.detach(),
               "loss": loss.detach()}
    groups = [{"params": [w], "weight_decay": ADAMW["weight_decay"] if decays(key, w) else 0.0}
              for key, w in parameters(model)]
    for key, w in fixed(model):
        tensors["w:" + key] = w.bfloat16().clone()
    for key, w in parameters(model):
        tensors["w:" + key] = w.detach().bfloat16().clone()
        tensors["g:" + key] = w.grad.clone()
    torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["eps"]).step()
    for key, w in parameters(model):
        tensors["w1:" + key] = w.detach().clone()
    keys = model.config.to_dict()
    keys["architectures"] = [type(model).__name__]
    metadata = {**{k: str(v) for k, v in ADAMW.items()}, "batch": str(BATCH), "seq": str(SEQ),
                "config": json.dumps(keys, sort_keys=True)}
    return {k: t.contiguous() for k, t in tensors.items()}, metadata


def goldens(folder):
    for name in CASES:
        path = pathlib.Path(folder) / f"hf_{name}.safetensors"
        tensors, metadata = make(name)
        save_file(tensors, path, metadata)
        print(f"{path.name}: {path.stat().st_size} bytes, loss {tensors['loss']:.6f}")
    return True


def distance(got, expected):
    return ((got.double() - expected.double()).abs().max() / expected.double().abs().max()).item()


def compare(folder):
    """Gradients that are nothing but rounding (a bias of keys, which the softmax cancels) differ from one machine to the next,
    and so does the sign that AdamW's first step makes of them: they count by the model's largest gradient."""
    worst = 0.0
    for name in CASES:
        tensors, _ = make(name)
        with safe_open(pathlib.Path(folder) / f"hf_{name}.safetensors", "pt") as file:
            stored = {key: file.get_tensor(key) for key in file.keys()}
        assert set(stored) == set(tensors), name
        largest = max(t.abs().max() for key, t in stored.items() if key.startswith("g:"))
        far = 0.0
        for key, t in tensors.items():
            got, expected = stored[key].double(), t.double()
            scale = expected.abs().max()
            if key.startswith("g:"):
                scale = torch.maximum(scale, 1e-3 * largest)
            if key.startswith("w1:"):
                got = torch.where(stored["g:" + key[3:]].abs() > 1e-4 * largest, got, expected)
            far = max(far, ((got - expected).abs().max() / scale).item())
        print(f"{name}: {far:.1e}")
        worst = max(worst, far)
    return worst <= 1e-5


def logits_of(model, tokens):
    with torch.no_grad():
        return model(tokens, use_cache=False).logits.float()


def load(folder):
    """As a user would. What is quantized is dequantized, so that any machine computes the same."""
    keys = json.loads((pathlib.Path(folder) / "config.json").read_text())
    quantization = keys.get("quantization_config", {})
    options = {}
    if quantization.get("quant_method") == "fp8":
        options["quantization_config"] = transformers.FineGrainedFP8Config(dequantize=True)
    if quantization.get("quant_method") == "compressed-tensors":
        options["quantization_config"] = transformers.CompressedTensorsConfig(run_compressed=False)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **options).eval()
    for w in model.parameters():
        w.data = w.data.float()
    return model


# Of the largest logit: f32 and bf16 hold the weights exactly; E4M3 moves each by up to 1/16, which a tiny random
# model averages little.
FAR = {"f32": 1e-6, "bf16": 1e-6, "fp8-block": 0.5, "fp8-tensor": 0.5}
FAR_AS_READ = 1e-6


def dtypes_of(kind):
    """What this machine can load: 4 takes block FP8 on GPUs alone."""
    return [dtype for dtype in FAR if not (dtype.startswith("fp8") and kind == "gpt2") and not (dtype == "fp8-block" and IS_4)]


def convert(octet, source, to, dtype):
    subprocess.run([octet, "convert", source, to, "--dtype", dtype, "--quiet"], check=True, stdout=subprocess.DEVNULL)


def through(octet, source, at, tokens, expected=None, far=FAR):
    """Converts `source` to at/DTYPE for each dtype, and has transformers compute the logits, which stay in at. Against
    `expected`, else those of f32. For 8 bits what octet itself reads of its export, written in f32, must give the same
    logits as what transformers reads of it."""
    is_good, line, results = True, [], {"tokens": tokens}
    kind = None
    for dtype in FAR:
        if kind is not None and dtype not in dtypes_of(kind):
            continue
        convert(octet, source, at / dtype, dtype)
        kind = json.loads((at / dtype / "config.json").read_text())["model_type"]
        got = results[dtype] = logits_of(load(at / dtype), tokens)
        d = distance(got, results["f32"] if expected is None else expected)
        is_good = is_good and d <= far[dtype]
        line.append(f"{dtype} {d:.1e}")
        if not dtype.startswith("fp8"):
            continue
        convert(octet, at / dtype, at / (dtype + "-read"), "f32")
        d = distance(got, logits_of(load(at / (dtype + "-read")), tokens))
        is_good = is_good and d <= FAR_AS_READ
        line.append(f"as read here {d:.1e}")
    save_file(results, at / LOGITS)
    return is_good, ", ".join(line)


def exports(octet, keep=None):
    """Each model to a folder by transformers, through octet in each dtype, and back: logits."""
    is_good = True
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            at = pathlib.Path(keep or folder) / name
            model, generator = model_of(name)
            model.save_pretrained(at / "in")
            tokens = torch.randint(model.config.vocab_size, (BATCH, SEQ), generator=generator)
            is_same, line = through(octet, at / "in", at, tokens, logits_of(model, tokens))
            is_good = is_good and is_same
            print(f"{name}: {line}", flush=True)
    return is_good


# name -> keys of `model:` in a run file beside those of a tiny shape
RUNS = {
    "llama": {"kind": "llama", "attention_bias": True, "mlp_bias": True},
    "llama_yarn": {"kind": "llama", "rope_scaling.type": "yarn", "rope_scaling.factor": 4,
                   "rope_scaling.original_max_position": 16},
    "llama_llama3": {"kind": "llama", "tied": True, "rope_scaling.type": "llama3", "rope_scaling.factor": 8,
                     "rope_scaling.original_max_position": 64},
    "mistral": {"kind": "mistral", "sliding_window": 6},
    "qwen2": {"kind": "qwen2", "tied": True},
    "qwen2_window": {"kind": "qwen2", "sliding_window": 6, "window_from": 1},
    "qwen3": {"kind": "qwen3", "head_dim": 8},
    "olmo": {"kind": "olmo", "clip_qkv": 0.5},
    "olmo2": {"kind": "olmo2"},
    "smollm3": {"kind": "smollm3", "no_rope_every": 2},
    "gpt2": {"kind": "gpt2", "kv_heads": 4},
    "pythia": {"kind": "gpt_neox", "kv_heads": 4, "rope_share": 0.5},
    "neox_in_series": {"kind": "gpt_neox", "kv_heads": 4, "parallel_residual": False, "gelu": "erf"},
}
NEWER_RUNS = {
    "gemma": {"kind": "gemma", "tied": True},
    "gemma2": {"kind": "gemma2", "tied": True, "sliding_window": 6, "attention_softcap": 1.5, "logit_softcap": 2.5,
               "query_pre_attn_scalar": 5},
    "gemma3": {"kind": "gemma3_text", "tied": True, "sliding_window": 6, "window_layers": [1, 0], "rope_scaling.type": "linear",
               "rope_scaling.factor": 4, "window_rope_theta": 50},
    "phi3": {"kind": "phi3", "ffn": 64, "sliding_window": 6, "rope_share": 0.75, "rope_scaling.type": "longrope",
             "rope_scaling.factor": 0, "rope_scaling.original_max_position": 8, "rope_scaling.short_factor": [1, 1.25, 1.5],
             "rope_scaling.long_factor": [2, 3, 4.5]},
    "olmo3": {"kind": "olmo3", "sliding_window": 6, "window_layers": [1, 0], "rope_scaling.type": "yarn", "rope_scaling.factor": 4,
              "rope_scaling.original_max_position": 8, "window_rope_theta": 50},
    "granite": {"kind": "granite", "tied": True, "embedding_multiplier": 3, "residual_multiplier": 0.3, "logits_scaling": 2.5},
    "glm": {"kind": "glm", "ffn": 64, "rope_share": 0.5, "attention_bias": True},
    "glm4": {"kind": "glm4", "ffn": 64, "rope_share": 0.5, "attention_bias": True},
    "starcoder2": {"kind": "starcoder2", "tied": True, "sliding_window": 6, "attention_bias": True},
    "ministral": {"kind": "ministral", "sliding_window": 6, "window_layers": [1, 0]},
    "ministral3": {"kind": "ministral3", "rope_scaling.type": "yarn", "rope_scaling.factor": 4, "rope_scaling.original_max_position": 8,
                   "rope_scaling.mscale": 0.5, "rope_scaling.mscale_all_dim": 1.5, "rope_scaling.llama_4_scaling_beta": 0.7},
    "seed_oss": {"kind": "seed_oss", "attention_bias": True, "attention_out_bias": True},
    "arcee": {"kind": "arcee", "mlp_bias": True},
    "nemotron": {"kind": "nemotron", "rope_share": 0.5, "mlp_bias": True},
    "cohere2": {"kind": "cohere2", "tied": True, "sliding_window": 6, "window_layers": [1, 0], "logit_scale": 0.7},
    "exaone4": {"kind": "exaone4", "sliding_window": 6, "window_layers": [1, 0]},
    "opt": {"kind": "opt", "kv_heads": 4, "embedding_size": 24, "attention_bias": True},
    "opt_after": {"kind": "opt", "kv_heads": 4, "norm_before": False, "tied": True, "mlp_act": "gelu_erf"},
    "gemma4": {"kind": "gemma4_text", "tied": True, "layers": 4, "ffn": 64, "sliding_window": 6, "window_layers": [1, 0, 1, 0],
               "window_rope_theta": 50, "rope_share": 0.5, "global_head_dim": 16, "layer_input": 6, "shared_kv_layers": 2,
               "wide_shared_mlp": True, "logit_softcap": 2.5},
    "qwen3_5": {"kind": "qwen3_5_text", "head_dim": 8, "linear_layers": [1, 0], "rope_share": 0.5, "linear_key_heads": 2,
                "linear_value_heads": 4, "linear_key_dim": 8, "linear_value_dim": 12, "conv_width": 3},
    "qwen3_layers": {"kind": "qwen3", "head_dim": 8, "sliding_window": 6, "window_layers": [1, 0]},
    "llama_gelu": {"kind": "llama", "mlp_act": "gelu_erf"},
}
if not IS_4:
    RUNS |= NEWER_RUNS
# No width needs a second block of 128 that is not whole: transformers takes the scales' grid for an even one.
RUN_SHAPE = {"hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 80, "vocab": 256, "seq": 24}
FAR_NLL = 2e-6


def runs(octet, keep=None):
    """Each model trained from its first weights by octet, whose config.json is octet's alone: the exports in each dtype, and
    the mean negative log-likelihood that octet and transformers compute of the run's masters."""
    is_good = True
    text = b"a quick brown fox jumps over the lazy dog; " * 40
    for name, keys in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            at = pathlib.Path(keep or folder) / name
            at.mkdir(parents=True)
            (at / "text.txt").write_bytes(text)
            sets = [f"model.{key}={json.dumps(value)}" for key, value in {**RUN_SHAPE, **keys}.items()]
            sets += [f"data.train=[{at / 'text.txt'}]", f"out={at / 'run'}", "data.tokenizer=bytes", "train.steps=8",
                     "train.save_every=8", "optim.lr=0.02", "optim.warmup=0", "recipe=bf16"]
            (at / "run.yaml").write_text("")
            subprocess.run([octet, "train", at / "run.yaml", "--quiet", *(x for one in sets for x in ("--set", one))], check=True,
                           stdout=subprocess.DEVNULL)
            tokens = torch.tensor(list(text[:BATCH * SEQ])).reshape(BATCH, SEQ)
            is_same, line = through(octet, at / "run", at, tokens, far={**FAR, "bf16": 0.02})
            model = load(at / "f32")
            expected, n = nll_of(model, list(text), RUN_SHAPE["seq"])
            out = subprocess.run([octet, "eval", "--model", at / "f32", "--data", at / "text.txt", "--tokenizer", "bytes", "--seq",
                                  str(RUN_SHAPE["seq"]), "--max-tokens", str(n), "--json", "--quiet"], check=True, capture_output=True)
            got = json.loads(out.stdout)[0]["nll"]
            is_good = is_good and is_same and abs(got - expected) <= FAR_NLL
            print(f"{name}: nll {got:.6f}, theirs {expected:.6f}, {line}", flush=True)
    return is_good


LOGITS = "logits.safetensors"


def reads(folder):
    """The exports that another version of transformers loaded: this one's logits."""
    worst = 0.0
    for at in sorted(path.parent for path in pathlib.Path(folder).glob(f"*/{LOGITS}")):
        if IS_4 and at.name in NEWER_CASES | NEWER_RUNS:
            continue
        with safe_open(at / LOGITS, "pt") as file:
            tokens = file.get_tensor("tokens")
            far = {dtype: distance(logits_of(load(at / dtype), tokens), file.get_tensor(dtype))
                   for dtype in dtypes_of("") if dtype in file.keys()}
        print(f"{at.name}: {', '.join(f'{dtype} {d:.1e}' for dtype, d in far.items())}", flush=True)
        worst = max(worst, *far.values())
    return worst <= FAR_AS_READ


PTQ_KEYS = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": 256, "head_dim": 16}
# Flags, and how far the mean negative log-likelihood may be. Dynamic scales are made otherwise there: of INT8 by 127.5, of
# MX rounded to nearest; block FP8 has no kernel on a CPU there: its activations stay wide.
PTQ = {"e4m3": ("e4m3 max", 2e-4), "e4m3-channel": ("e4m3 max --weights channel --activations token", 1e-3),
       "e4m3-algorithm1": ("e4m3 algorithm1", 2e-4), "int8": ("int8 smoothquant", 2e-4),
       "int8-token": ("int8 max --weights channel --activations token", 5e-3), "int8-gptq": ("int8 gptq", 2e-4),
       "mxfp8": ("mxfp8 max", 2e-2), "fp8-block": ("fp8-block max", 2e-2)}


def nll_of(model, ids, seq):
    """Mean over consecutive windows, as `octet eval` has them."""
    total, n = 0.0, 0
    for first in range(0, len(ids) - 1, seq):
        rows = torch.tensor(ids[first:first + seq + 1])
        if len(rows) < seq + 1:
            break
        logits = logits_of(model, rows[None, :-1])[0]
        total += F.cross_entropy(logits.double(), rows[1:], reduction="sum").item()
        n += seq
    return total / n, n


def ptq(octet):
    CASES["ptq"] = PTQ_KEYS
    model, generator = model_of("ptq")
    is_good = True
    with tempfile.TemporaryDirectory() as folder:
        at, seq = pathlib.Path(folder), 48
        model.save_pretrained(at / "in")
        ids = torch.randint(97, 123, (seq * 24 + 1,), generator=generator).tolist()
        (at / "text.txt").write_bytes(bytes(ids))
        for name, (flags, far) in PTQ.items():
            form, method, *rest = flags.split()
            run = [octet, "ptq", "--model", at / "in", "--format", form, "--method", method, "--calib", at / "text.txt",
                   "--out", at / name, "--samples", "8", "--seq", str(seq), "--quiet", *rest]
            subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
            quantization = json.loads((at / name / "config.json").read_text())["quantization_config"]
            options = {}
            if quantization["quant_method"] == "fp8":
                options["quantization_config"] = transformers.FineGrainedFP8Config(dequantize=True)
            theirs = transformers.AutoModelForCausalLM.from_pretrained(
                at / name, dtype=torch.float32, attn_implementation="eager", **options).eval()
            if quantization["quant_method"] == "compressed-tensors":
                theirs.hf_quantizer.compressor.decompress_model(theirs)  # else with the first forward, and MX to BF16
                for w in theirs.parameters():
                    w.data = w.data.float()
            expected, n = nll_of(theirs, ids, seq)
            wide, _ = nll_of(model, ids, seq)
            text = subprocess.run([octet, "eval", "--model", at / name, "--data", at / "text.txt", "--seq", str(seq),
                                   "--max-tokens", str(n), "--json", "--quiet"], check=True, capture_output=True)
            got = json.loads(text.stdout)[0]["nll"]
            is_good = is_good and abs(got - expected) <= far
            print(f"{name}: nll {got:.6f}, theirs {expected:.6f}, unquantized {wide:.6f}", flush=True)
    return is_good


TARGETS = {"llama": ["*_proj"], "qwen3": ["q_proj", "down_proj"], "gpt2": ["c_*"], "pythia": ["query_key_value", "dense"]}


def adapters(octet):
    """Trains adapters in f32 with OCTET, and loads them with PEFT beside the base of transformers."""
    import peft
    is_good = True
    for name, targets in TARGETS.items():
        with tempfile.TemporaryDirectory() as folder:
            at = pathlib.Path(folder)
            config = config_of({**CASES[name], "vocab_size": 256})
            torch.manual_seed(1)
            base = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
            base.save_pretrained(at / "base")
            (at / "text.txt").write_text("a quick brown fox jumps over the lazy dog\n" * 60)
            run = subprocess.run
            run([octet, "train", "--model", at / "base", "--data", at / "text.txt", "--out", at / "run", "--recipe", "fp32",
                 "--quiet", "--set", "lora.rank=4", "--set", "lora.targets=" + json.dumps(targets), "--set", "data.tokenizer=bytes",
                 "--set", "optim.lr=0.02", "--set", "train.steps=20", "--set", "model.seq=16", "--set",
                 "train.keep_best=false", "--set", "train.export=f32"], check=True, stdout=subprocess.DEVNULL)
            run([octet, "convert", at / "run", at / "adapter", "--adapter-only", "--quiet"], check=True,
                stdout=subprocess.DEVNULL)
            tokens = torch.randint(256, (BATCH, SEQ), generator=torch.Generator().manual_seed(2))
            before = logits_of(base, tokens)
            merged = logits_of(load(at / "run" / "export"), tokens)
            adapted = logits_of(peft.PeftModel.from_pretrained(base, at / "adapter").eval(), tokens)
            far, moved = distance(adapted, merged), distance(adapted, before)
            is_good = is_good and far <= 2e-6 and moved >= 0.05
            print(f"{name}: PEFT from merged {far:.1e}, from the base {moved:.1e}", flush=True)
    return is_good


# Documents of each task, and how far a log-likelihood may be from lm-eval's.
TASKS = ["hellaswag", "arc_easy", "arc_challenge", "sciq", "piqa", "openbookqa", "boolq", "copa", "winogrande", "lambada"]
DOCUMENTS, FAR_NATS = 8, 1e-4


def tasks_model(folder, tokenizer):
    """A tiny random model with the vocabulary of the tokenizer, weights wide enough for choices to differ."""
    keys = {**TINY, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
            "vocab_size": len(tokenizer), "max_position_embeddings": 256, "bos_token_id": None, "eos_token_id": 0}
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**keys)).float().eval()
    for w in model.parameters():
        if w.dim() == 2:
            w.data.normal_(0, 0.1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def picks(rows, values):
    """The choice of each document with the largest value."""
    best = {}
    for row, value in zip(rows, values):
        key = (row["task"], row["document"])
        if key not in best or value > best[key][0]:
            best[key] = (value, row["choice"])
    return {key: choice for key, (_, choice) in best.items()}


def byte_vocabulary():
    """Each byte as byte-level tokenizers spell it."""
    letters = [c for c in range(256) if 33 <= c <= 126 or 161 <= c <= 172 or 174 <= c]
    others = [c for c in range(256) if c not in letters]
    return {chr(c): c for c in letters} | {chr(256 + i): c for i, c in enumerate(others)}


def byte_tokenizer():
    """Ids are bytes; byte 0, which no text has, ends a text (lm-eval wants one that does)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    tokenizer = Tokenizer(models.BPE(vocab=byte_vocabulary(), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=chr(256))


def tasks(octet, data, trained=None):
    """With a folder `trained`, of a model of bytes, that model instead of a random one."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    source = pathlib.Path(data) / "data/tokenizers/olmo/allenai_gpt-neox-olmo-dolma-v1_5.json"
    if not source.exists():
        print(f"tasks: skipped, {source} is not there")
        return True
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        if trained is None:
            tasks_model(at / "model",
                        transformers.PreTrainedTokenizerFast(tokenizer_file=str(source), eos_token="<|endoftext|>"))
        else:
            shutil.copytree(trained, at / "model")
            byte_tokenizer().save_pretrained(at / "model")
        longest = 256 if trained is None else 2048
        subprocess.run([octet, "eval", "--model", at / "model", "--tasks", ",".join(TASKS), "--task-data",
                        pathlib.Path(data) / "data/eval_ft", "--limit", str(DOCUMENTS), "--requests", at / "requests.jsonl",
                        "--seq", str(longest), "--quiet"], check=True, stdout=subprocess.DEVNULL)
        rows = [json.loads(line) for line in (at / "requests.jsonl").read_text().splitlines()]
        model = HFLM(pretrained=str(at / "model"), tokenizer=str(at / "model"), device="cpu", dtype="float32",
                     batch_size=4, max_length=longest)
        requests = [Instance("loglikelihood", {}, (row["context"], row["continuation"]), i)
                    for i, row in enumerate(rows)]
        expected = model.loglikelihood(requests, disable_tqdm=True)
    far = max(abs(row["log_likelihood"] - e[0]) for row, e in zip(rows, expected))
    same = picks(rows, [row["log_likelihood"] for row in rows]) == picks(rows, [e[0] for e in expected])
    greedy = all(row["is_greedy"] == e[1] for row, e in zip(rows, expected))
    print(f"tasks: {len(rows)} requests of {len(TASKS)} tasks, at most {far:.1e} nats from lm-eval's; picks "
          f"{'are' if same else 'DIFFER: not'} identical, greedy matches {'too' if greedy else 'NOT'}")
    return far <= FAR_NATS and same and greedy


def versions():
    import importlib.metadata as metadata
    print(f"transformers {transformers.__version__}, " + ", ".join(
        f"{name} {metadata.version(name)}" for name in ("torch", "compressed-tensors", "peft", "lm_eval")))
    return True


COMMANDS = {"versions": versions, "goldens": goldens, "compare": compare, "exports": exports, "runs": runs, "reads": reads,
            "ptq": ptq, "adapters": adapters, "tasks": tasks}


def main():
    command, *rest = sys.argv[1:] or ["help"]
    if command not in COMMANDS:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message="You passed `quantization_config`")
    if not COMMANDS[command](*rest):
        sys.exit(f"parity: {command} FAILED")


if __name__ == "__main__":
    main()
