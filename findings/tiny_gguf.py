"""A tiny Llama with random weights as a GGUF file, and a server of llama.cpp that has loaded it."""
import gguf
import numpy as np
import xllamacpp

TOKENS = [chr(c) for c in range(33, 127)] + ["Ġ", "<s>", "</s>"]
WIDTH, LAYERS, HEADS, FFN = 32, 2, 2, 48


def write(path, tokens=None, **more):
    tokens = tokens or TOKENS
    words, random = len(tokens) - 2, np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    keys = {"llama.block_count": LAYERS, "llama.context_length": 128, "llama.embedding_length": WIDTH, "llama.feed_forward_length": FFN,
            "llama.attention.head_count": HEADS, "llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.bos_token_id": words, "tokenizer.ggml.eos_token_id": words + 1}
    for key, value in (keys | {name.replace("__", "."): value for name, value in more.items()}).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add(key, value)
    writer.add_array("tokenizer.ggml.tokens", tokens)
    writer.add_array("tokenizer.ggml.token_type", [1] * words + [3, 3])
    writer.add_array("tokenizer.ggml.merges", ["a b"])
    shapes = {"token_embd": (len(tokens), WIDTH), "output": (len(tokens), WIDTH)}
    for i in range(LAYERS):
        shapes |= {f"blk.{i}.{name}": (WIDTH, WIDTH) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
        shapes |= {f"blk.{i}.ffn_gate": (FFN, WIDTH), f"blk.{i}.ffn_up": (FFN, WIDTH), f"blk.{i}.ffn_down": (WIDTH, FFN)}
    for name, shape in shapes.items():
        writer.add_tensor(name + ".weight", (random.standard_normal(shape) / shape[1] ** 0.5).astype(np.float32))
    for name in ["output_norm"] + [f"blk.{i}.{part}_norm" for i in range(LAYERS) for part in ("attn", "ffn")]:
        writer.add_tensor(name + ".weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def serve(path):
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = path, 128, 1, False
    params.n_gpu_layers, params.cpuparams.n_threads, params.fit_params = 0, 1, False
    return xllamacpp.Server(params)


def ask(path, **request):
    return serve(path).handle_completions({"prompt": "a quick fox", "seed": 1, "cache_prompt": False} | request)


def first_logprobs(path, n=200):
    """The log-probabilities of every next token behind a text."""
    got = ask(path, n_predict=1, n_probs=n, temperature=0.0)
    return {one["token"]: one["logprob"] for one in got["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}
