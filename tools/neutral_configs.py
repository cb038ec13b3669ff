"""The proofs of config.json's neutral keys (tools/neutral_keys.py), over every model that Octet has."""
import json
import pathlib
import tempfile

import torch
import transformers

import make_encoder_goldens as encoders
import parity

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)

DECODERS = ["llama_llama3", "mistral", "qwen2_window", "qwen3_yarn", "olmo", "olmo2", "smollm3", "gpt2", "pythia",
            *parity.NEWER_KINDS.values()]
ENCODERS = ["bert_masked", "bert_classes", "bert_span", "bert_features", "roberta_masked", "roberta_classes",
            "distilbert_masked", "distilbert_classes", "vit", "deit", "clip_vision", "siglip_vision", "resnet_basic", "resnet_bottleneck", "mobilenet_v2"]
TRANSLATORS = ["t5", "t5_gated_untied", "mt5", "marian_swish"]
WITH_PICTURES = ["llava", "llava_siglip", "idefics3"]
ALL = " ".join([*(parity.CASES[name]["model_type"] for name in DECODERS), "bert roberta distilbert vit deit clip_vision_model siglip_vision_model resnet mobilenet_v2 t5 mt5 marian llava idefics3"])
CLOSE = 1e-6

# Of generation by transformers: octet's flags take their place.
GENERATION = {
    "bad_words_ids": ([[3]], [[4, 5]]), "cache_implementation": ("hybrid", "static"), "diversity_penalty": (0.5, 2.0), "do_sample": (True, None), "early_stopping": (True, "never"),
    "encoder_no_repeat_ngram_size": (2, 3), "exponential_decay_length_penalty": ([2, 1.5], [3, 2.0]), "length_penalty": (0.5, 2.0),
    "max_length": (4, 900), "min_length": (3, 5), "no_repeat_ngram_size": (2, 3), "num_beam_groups": (2, 3), "num_beams": (2, 3),
    "num_return_sequences": (2, 3), "remove_invalid_values": (True, None), "repetition_penalty": (1.5, 0.5), "temperature": (0.3, 2.0),
    "top_k": (1, 7), "top_p": (0.1, 0.5), "typical_p": (0.2, 0.9), "decoder_start_token_id": (3, 4), "forced_bos_token_id": (3, 4),
    "forced_eos_token_id": (3, 4), "suppress_tokens": ([3], [4, 5]), "begin_suppress_tokens": ([3], [4, 5]), "prefix": ("a", "b c"),
    "task_specific_params": ({"text-generation": {"do_sample": True, "max_length": 5}}, {"summarization": {"prefix": "s: "}}),
}
# Of software: where a file came from, how other programs compute, and what they hand back.
SOFTWARE = {
    "_attn_implementation": ("sdpa", "eager"), "_attn_implementation_autoset": (True, False), "attn_implementation": ("sdpa", "eager"),
    "_commit_hash": ("0123abcd", "ff"), "_name_or_path": ("someone/model", "/nowhere"), "name_or_path": ("someone/model", "/nowhere"),
    "dtype": ("bfloat16", "float16"), "torch_dtype": ("bfloat16", "float16"), "use_bfloat16": (True, False),
    "finetuning_task": ("mrpc", "sst2"), "output_attentions": (True, False), "output_hidden_states": (True, False),
    "output_scores": (True, False), "return_dict": (False, True), "return_dict_in_generate": (True, False),
    "use_return_dict": (False, True), "tf_legacy_loss": (True, False), "torchscript": (True, False),
    "tokenizer_class": ("BertTokenizer", "GPT2TokenizerFast"), "transformers_version": ("4.1.0", "99.0.0"),
    "transformers.js_config": ({"dtype": "q4"}, {}), "unsloth_fixed": (True, False), "unsloth_version": ("2024.1", "1"),
    "use_cache": (False, True), "gradient_checkpointing": (True, False), "chunk_size_feed_forward": (1, 2),
    "reorder_and_upcast_attn": (True, False), "tp_plan": ({"layers.*.mlp": "colwise"}, {}), "use_flash_attn": (True, False),
    "pretraining_tp": (2, 4), "tie_weights_": (True, False), "_sliding_window_pattern": (2, 3),
}
# Of training: how weights begin, and the random parts, which Octet's training does not have.
TRAINING = {
    "attention_dropout": (0.3, 0.6), "attention_probs_dropout_prob": (0.3, 0.6), "attn_pdrop": (0.3, 0.6), "classifier_dropout": (0.3, 0.6),
    "classifier_dropout_prob": (0.3, 0.6),
    "embd_pdrop": (0.3, 0.6), "embedding_dropout": (0.3, 0.6), "hidden_dropout": (0.3, 0.6), "hidden_dropout_prob": (0.3, 0.6),
    "resid_pdrop": (0.3, 0.6), "residual_dropout": (0.3, 0.6), "dropout": (0.3, 0.6), "qa_dropout": (0.3, 0.6),
    "seq_classif_dropout": (0.3, 0.6), "initializer_range": (0.5, 2.0), "neftune_noise_alpha": (1.0, 5.0),
    "activation_dropout": (0.3, 0.6), "decoder_layerdrop": (0.3, 0.6), "encoder_layerdrop": (0.3, 0.6), "dropout_rate": (0.3, 0.6),
    "init_std": (0.5, 2.0), "initializer_factor": (0.5, 2.0),
}
# Of tokens: what texts begin and end with is the tokenizer's to say, and the model's own is generation's.
TOKENS = {"bos_token_id": (3, 5), "eos_token_id": (3, [4, 5]), "pad_token_id": (3, 5), "_pad_token_id": (3, 5), "sep_token_id": (3, 5)}
# Of heads that Octet does not have.
OTHERS = {
    "encoder_stride": (8, 4), "pooler_act": ("relu", "gelu"), "pooler_output_size": (32, 16), "summary_activation": ("tanh", "relu"),
    "summary_first_dropout": (0.3, 0.6), "summary_proj_to_labels": (True, False), "summary_type": ("mean", "cls_index"),
    "summary_use_proj": (True, False), "is_decoder": (True, False), "stage_names": (["a", "b"], ["stem"]),
    "out_features": (["stage1"], ["stem"]), "out_indices": ([1], [0]), "semantic_loss_ignore_index": (0, 7),
}
GROUPS = [GENERATION, SOFTWARE, TRAINING, TOKENS, OTHERS]
# Models whose reader takes a key of these groups, or refuses it.
READ = {"pad_token_id": ["roberta"], "is_decoder": ["bert", "roberta", "t5", "mt5", "marian"],
        "decoder_start_token_id": ["t5", "mt5", "marian"]}
GIVEN = {"dtype": "the program's own choice of a recipe", "torch_dtype": "the program's own choice of a recipe"}

# The keys of a rotary scaling that this type of scaling does not read.
ROPE = {"factor": (2.0, 7.0), "low_freq_factor": (0.5, 2.0), "high_freq_factor": (3.0, 9.0), "beta_fast": (16.0, 64.0),
        "beta_slow": (0.5, 3.0), "truncate": (False, True), "attention_factor": (0.5, 2.0),
        "original_max_position_embeddings": (8, 128), "mscale": (0.5, 2.0), "mscale_all_dim": (0.5, 2.0),
        "short_factor": ([1.5, 2.0, 3.0, 4.0], [1.0, 1.0, 2.0, 2.0]), "long_factor": ([1.5, 2.0, 3.0, 4.0], [1.0, 1.0, 2.0, 2.0])}
ROPE_READS = {"default": [], "linear": ["factor"], "dynamic": ["factor", "original_max_position_embeddings"],
              "llama3": ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]}


class Folder:
    """A tiny model as transformers saves it, whose config.json can be given other keys."""

    def __init__(self, name, model, given):
        self.kind, self.architecture, self.given = model.config.model_type, type(model).__name__, given
        self.scratch = tempfile.TemporaryDirectory(prefix=f"neutral-{name}-")  # goes with the last that has it
        self.name, self.at = name, pathlib.Path(self.scratch.name)
        model.save_pretrained(self.at)
        self.config = json.loads((self.at / "config.json").read_text())
        self.expected = self.run({})

    def run(self, changes):
        """Outputs, and gradients of a loss with all random parts off."""
        (self.at / "config.json").write_text(json.dumps(changed(self.config, changes)))
        kind = getattr(transformers, self.architecture)
        implementation = {} if any("attn_implementation" in key for key in changes) else {"attn_implementation": "eager"}
        model = kind.from_pretrained(self.at, dtype=torch.float32, **implementation).eval()
        output = output_of(model, self.given)
        generator = torch.Generator().manual_seed(1)
        (output * torch.randn(output.shape, generator=generator)).sum().backward()
        return output.detach(), {key: w.grad for key, w in model.named_parameters()}


def output_of(model, given):
    """What Octet gives of the same model: logits, or features of tokens."""
    result = model(**given)
    if isinstance(result, tuple):
        names = ["start_logits", "end_logits"] if "Question" in type(model).__name__ else ["logits"]
        result = dict(zip(names, result)) | {"last_hidden_state": result[0]}
    if "start_logits" in result:
        return torch.stack([result["start_logits"], result["end_logits"]], -1)
    return result["logits"] if "logits" in result else result["last_hidden_state"]


def changed(config, changes):
    config = json.loads(json.dumps(config))
    for key, value in changes.items():
        at = config
        if key.startswith("rope/"):
            at, key = config["rope_parameters"], key[len("rope/"):]
        at[key] = value
    return config


def folders():
    for name in DECODERS:
        model, generator = parity.model_of(name)
        tokens = torch.randint(model.config.vocab_size, (parity.BATCH, parity.SEQ), generator=generator)
        yield Folder(name, model, {"input_ids": tokens})
    for name in ENCODERS + TRANSLATORS + WITH_PICTURES:
        architecture, fields = encoders.CASES[name]
        torch.manual_seed(len(name))
        kind = getattr(transformers, architecture)
        model = kind(kind.config_class(**fields)).eval()
        with torch.no_grad():
            for one in model.parameters():
                one.add_(torch.randn_like(one) * 0.1)
        if "image_size" in fields:
            yield Folder(name, model, {"pixel_values": torch.randn(2, fields.get("num_channels", 3), fields["image_size"], fields["image_size"])})
            continue
        if name in WITH_PICTURES:
            yield Folder(name, model, encoders.picture_inputs(model.config)[0])
            continue
        if name in TRANSLATORS:
            yield Folder(name, model, encoders.source_inputs(model.config, fields)[0])
            continue
        given, _ = encoders.text_inputs(model.config)
        given["input_ids"][:, 1::3] = 5  # a token that some values of pad_token_id name, where it is no padding
        given["input_ids"][:, 2::3] = 3
        given.pop("position_ids", None)
        yield Folder(name, model, given)


def distance(got, expected):
    if got.shape != expected.shape:
        return float("inf")
    return ((got.double() - expected.double()).abs().max() / expected.double().abs().max().clamp(min=1e-30)).item()


def how(folder, changes):
    """"same", "1e-6", "refused there", or what changed; and whether gradients stayed."""
    try:
        output, gradients = folder.run(changes)
    except Exception as error:  # noqa: BLE001 - whatever the reference says of a value
        return "refused there", True, str(error).splitlines()[0][:100]
    far = distance(output, folder.expected[0])
    largest = max(g.abs().max() for g in folder.expected[1].values() if g is not None)
    moved = max(((g - folder.expected[1][key]).abs().max() / largest).item()
                for key, g in gradients.items() if g is not None and folder.expected[1].get(key) is not None)
    verdict = "same" if far == 0 else "1e-6" if far <= CLOSE else ""
    return verdict, moved <= CLOSE, f"outputs by {far:.2g}, gradients by {moved:.2g}"


def row_of(key, values, given, results):
    """One row from results [(model, verdict, are gradients same, why)] of all folders and values."""
    bad = [(name, why) for name, verdict, _, why in results if not verdict]
    verdicts = [verdict for _, verdict, _, _ in results]
    proof = next((v for v in ("1e-6", "refused there", "same") if v in verdicts), "")
    if "refused there" in verdicts and not all(v == "refused there" for v in verdicts):
        names = sorted({name for name, verdict, _, _ in results if verdict == "refused there"})
        proof = ("1e-6" if "1e-6" in verdicts else "same") + "; refused there of " + " ".join(names)
    moved = sorted({name for name, verdict, is_same, _ in results if verdict and not is_same})
    holds = "outputs and gradients" if not moved else "outputs; gradients not of " + " ".join(moved)
    models = " ".join(dict.fromkeys(name for name, *_ in results))
    models = "all" if models == ALL else models
    return {"key": key, "values": " | ".join(map(json.dumps, values)), "given": given, "holds": holds, "models": models,
            "proof": "" if bad else proof, "why": "; ".join(f"{name} {why}" for name, why in bad)}


def prove_configs():
    made = list(folders())
    for group in GROUPS:
        for key, values in group.items():
            results = []
            for folder in made:
                for value in values if folder.kind not in READ.get(key, []) else ():
                    if folder.config.get(key, "none") != value:
                        results.append((folder.kind, *how(folder, {key: value})))
            yield row_of(key, values, GIVEN.get(key, ""), results)
    yield from prove_gates(made)
    yield from prove_ropes()


def prove_gates(made):
    """Keys that another one turns off."""
    for key, values in {"sliding_window": (2, 3), "max_window_layers": (0, 2)}.items():
        results = []
        for folder in [f for f in made if f.kind in ("qwen2", "qwen3")]:
            off = {"use_sliding_window": False, "layer_types": None}
            base = Folder.__new__(Folder)
            base.__dict__.update(folder.__dict__)
            base.expected = folder.run(off)
            results += [(folder.kind, *how(base, {**off, key: value})) for value in values]
        yield row_of(key, values, "use_sliding_window: false", results)


def prove_ropes():
    for kind, reads in ROPE_READS.items():
        rope = {"rope_type": kind, "rope_theta": 500.0} | {key: ROPE_BASE[key] for key in reads}
        parity.CASES["rope"] = {"model_type": "llama", "head_dim": 8, "rope_parameters": rope}
        model, generator = parity.model_of("rope")
        tokens = torch.randint(model.config.vocab_size, (parity.BATCH, parity.SEQ), generator=generator)
        folder = Folder("rope", model, {"input_ids": tokens})
        for key, values in ROPE.items():
            if key not in reads:
                results = [("llama", *how(folder, {"rope/" + key: value})) for value in values]
                yield row_of("rope/" + key, values, f"rope/rope_type: {kind}", results)


ROPE_BASE = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
READERS = {"config.json": prove_configs}
