"""The proofs of GGUF's neutral keys (tools/neutral_keys.py). The reference is llama.cpp, as xllamacpp packs it: the
log-probabilities of every next token behind a text and behind a long row of ids, and how many tokens the text has."""
import pathlib
import tempfile

import gguf
import numpy as np
import xllamacpp

TOKENS = [chr(c) for c in range(33, 127)] + ["Ġ", "<s>", "</s>", "<pad>", "<|eot|>"]  # Ġ: the byte of a space
WORDS = len(TOKENS) - 4
WIDTH, LAYERS, HEADS, KV_HEADS, FFN = 64, 2, 4, 2, 96
KEYS = {
    "llama.block_count": LAYERS, "llama.context_length": 128, "llama.embedding_length": WIDTH, "llama.feed_forward_length": FFN,
    "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KV_HEADS, "llama.attention.layer_norm_rms_epsilon": 1e-3,
    "llama.rope.freq_base": 500.0, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.bos_token_id": WORDS, "tokenizer.ggml.eos_token_id": WORDS + 1, "tokenizer.ggml.add_bos_token": True,
}
FAR = 1e-5


def write(path, changes):
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (KEYS | changes).items():
        if value is None:
            continue
        kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
        kinds[type(value)](key, value)
    writer.add_array("tokenizer.ggml.tokens", TOKENS)
    writer.add_array("tokenizer.ggml.token_type", [1] * WORDS + [3] * 4)
    writer.add_array("tokenizer.ggml.merges", ["a b"])
    random = np.random.default_rng(1)

    def matrix(name, rows, cols):
        writer.add_tensor(name + ".weight", (random.standard_normal((rows, cols)) / cols ** 0.5).astype(np.float32))

    def norm(name):
        writer.add_tensor(name + ".weight", (1 + 0.2 * random.standard_normal(WIDTH)).astype(np.float32))

    matrix("token_embd", len(TOKENS), WIDTH)
    matrix("output", len(TOKENS), WIDTH)
    norm("output_norm")
    kv = WIDTH * KV_HEADS // HEADS
    for i in range(LAYERS):
        for name, rows, cols in [("attn_q", WIDTH, WIDTH), ("attn_k", kv, WIDTH), ("attn_v", kv, WIDTH), ("attn_output", WIDTH, WIDTH),
                                 ("ffn_gate", FFN, WIDTH), ("ffn_up", FFN, WIDTH), ("ffn_down", WIDTH, FFN)]:
            matrix(f"blk.{i}.{name}", rows, cols)
        norm(f"blk.{i}.attn_norm")
        norm(f"blk.{i}.ffn_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run(path):
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = str(path), 128, 1, False
    params.n_gpu_layers, params.cpuparams.n_threads, params.verbosity, params.fit_params = 0, 1, -1, False
    server, results = xllamacpp.Server(params), []
    for prompt in ["a quick brown fox", [i % WORDS for i in range(7, 87)]]:
        # An id of the words alone is drawn, so that its text is whole.
        got = server.handle_completions({"prompt": prompt, "n_predict": 1, "n_probs": len(TOKENS), "temperature": 0.0, "cache_prompt": False,
                                         "logit_bias": [[i, -100.0] for i in range(WORDS, len(TOKENS))]})
        if "choices" not in got:
            raise ValueError(str(got))
        first = got["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        by_id = {one["id"]: one["logprob"] for one in first}
        results += [float(got["usage"]["prompt_tokens"])] + [by_id[i] for i in range(WORDS)]
    return np.array(results)


def distance(got, expected):
    return float("inf") if got.shape != expected.shape or got[0] != expected[0] else float(np.abs(got - expected).max())


TEXTS = ("a", "b c")
SAMPLER = "a sampler that the program sets itself"
# key -> values, and what makes it neutral where it is not always so.
NEUTRAL = {
    **{"general." + key: (TEXTS, "") for key in (
        "name", "author", "version", "organization", "basename", "finetune", "description", "quantized_by", "size_label", "license",
        "license.name", "license.link", "url", "doi", "uuid", "repo_url", "source.url", "source.huggingface.repository")},
    "general.tags": ((["a"], ["b", "c"]), ""), "general.languages": ((["en"], ["de", "fr"]), ""), "general.datasets": ((["a"], ["b"]), ""),
    "general.quantization_version": ((2, 1), ""), "general.file_type": ((0, 7), ""),
    "general.sampling.temp": ((0.1, 2.0), SAMPLER), "general.sampling.top_k": ((1, 5), SAMPLER),
    "quantize.imatrix.file": (TEXTS, ""), "quantize.imatrix.dataset": (TEXTS, ""), "quantize.imatrix.entries_count": ((3, 9), ""),
    "quantize.imatrix.chunks_count": ((3, 9), ""), "split.no": ((0, 1), ""), "split.tensors.count": ((3, 21), ""),
    "llama.rope.scaling.original_context_length": ((16, 64), ""), "llama.rope.scaling.finetuned": ((True, False), ""),
    "tokenizer.ggml.scores": (([0.5] * len(TOKENS), [-1.0] * len(TOKENS)), ""), "tokenizer.ggml.token_type_count": ((2, 5), ""),
}


def prove():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.gguf"
        for key, (values, given) in NEUTRAL.items():
            write(path, {})
            expected, far, why = run(path), 0.0, ""
            for value in values:
                try:
                    write(path, {key: value})
                    far = max(far, distance(run(path), expected))
                except Exception as error:  # noqa: BLE001
                    far, why = float("inf"), str(error)[:80]
            yield {"key": key, "values": " | ".join(str(value) if len(str(value)) < 60 else f"{str(value)[:20]}..." for value in values), "given": given,
                   "holds": "outputs", "models": "llama", "proof": "same" if far == 0 else "1e-5" if far <= FAR else "",
                   "why": why or f"outputs by {far:.2g}"}


READERS = {"gguf": prove}
