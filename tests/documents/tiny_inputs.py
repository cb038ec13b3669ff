"""What the commands of the documents are run on: a model folder, conversations, texts, task files; all tiny, all made here."""

import gzip
import json
import random
import struct
from array import array
from pathlib import Path

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{i}|>" for i in range(5)]
CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
HIDDEN, LAYERS, FFN, VOCAB = 64, 2, 128, 256 + len(SPECIAL)
WORDS = "the a small big red old king cat dog tree house river walked saw found said and then once upon time home".split()


def sentences(n, seed):
    rng = random.Random(seed)
    return " ".join(" ".join(rng.choices(WORDS, k=8)).capitalize() + "." for _ in range(n))


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def write_json(path, value):
    write(path, json.dumps(value, indent=1))


def write_lines(path, values):
    write(path, "".join(json.dumps(value) + "\n" for value in values))


def byte_alphabet():
    """The characters by which byte-level vocabularies write the 256 bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {**{byte: chr(byte) for byte in shown}, **{byte: chr(256 + i) for i, byte in enumerate(hidden)}}


def write_tokenizer(folder):
    alphabet = byte_alphabet()
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [{"id": 256 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, text in enumerate(SPECIAL)]
    write_json(folder / "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {alphabet[byte]: byte for byte in range(256)}, "merges": []}})
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>",
                                                  "chat_template": CHATML})


def weights():
    """Name and shape of each tensor of the model."""
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name in "qkvo":
            yield f"{at}self_attn.{name}_proj.weight", (HIDDEN, HIDDEN)
        yield at + "mlp.gate_proj.weight", (FFN, HIDDEN)
        yield at + "mlp.up_proj.weight", (FFN, HIDDEN)
        yield at + "mlp.down_proj.weight", (HIDDEN, FFN)
        yield at + "input_layernorm.weight", (HIDDEN,)
        yield at + "post_attention_layernorm.weight", (HIDDEN,)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def write_tensors(path, tensors):
    """Pairs of a name and a shape: matrices of small random numbers, vectors of ones."""
    rng, header, data = random.Random(1), {}, bytearray()
    for name, shape in tensors:
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = array("f", (rng.gauss(0, 0.05) for _ in range(n)) if len(shape) > 1 else [1.0] * n)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * n]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    write(path, struct.pack("<Q", len(text)) + text + bytes(data))


def write_model(folder):
    write_tensors(folder / "model.safetensors", weights())
    write_json(folder / "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": FFN, "vocab_size": VOCAB,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "eos_token_id": 258, "torch_dtype": "float32"})
    write_tokenizer(folder)


def write_adapter(folder, base, rank=4):
    """LoRA of the queries, as PEFT saves it."""
    write_json(folder / "adapter_config.json", {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "r": rank,
                                                "lora_alpha": 2 * rank, "target_modules": ["q_proj"]})
    at = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
    write_tensors(folder / "adapter_model.safetensors", [(at.format(layer, name), shape) for layer in range(LAYERS)
                                                         for name, shape in (("A", (rank, HIDDEN)), ("B", (HIDDEN, rank)))])


def conversation(seed):
    return {"messages": [{"role": "user", "content": sentences(1, seed)}, {"role": "assistant", "content": sentences(2, seed + 1)}]}


def instruction(seed):
    return {"instruction": sentences(1, seed), "input": "", "output": sentences(2, seed + 1)}


def tool_answer(seed):
    """ToolBench's tree of one call."""
    final = json.dumps({"return_type": "give_answer", "final_answer": sentences(1, seed)})
    names = [("Thought", "I call it."), ("Action", "search_for_tools"), ("Action Input", "{}")]
    nodes = [{"node_type": kind, "description": text, "observation": "done" if kind == "Action Input" else ""} for kind, text in names]
    nodes += [{"node_type": "Thought", "description": "I answer.", "observation": ""},
              {"node_type": "Action", "description": "Finish", "observation": ""},
              {"node_type": "Action Input", "description": final, "observation": '{"response":"successfully giving the final answer."}'}]
    child = None
    for node in reversed(nodes):
        child = {**node, "is_terminal": child is None, "pruned": False, "finished": child is None, "messages": [],
                 "children": [] if child is None else [child]}
    tree = {"node_type": "Action Input", "description": "", "observation": "", "is_terminal": False, "pruned": False,
            "finished": True, "messages": [], "children": [child]}
    return {"win": True, "tree": {"size": 7, "max_length": 7, "tree": tree},
            "answer_generation": {"valid_data": True, "final_answer": final, "query": sentences(1, seed + 2), "function": [],
                                  "finish_type": "give_answer", "train_messages": []}}


def write_tasks(data):
    """The first files that docs/where_from.md names, under the names that it gives them."""
    problems = [{"question": sentences(1, i), "answer": f"{sentences(1, i + 1)}\n#### {i}"} for i in range(40)]
    write_lines(data / "gsm8k/train.jsonl", problems)
    write_lines(data / "gsm8k/test.jsonl", problems[:6])
    lines = [line for i in range(4) for line in (f"Walking: {sentences(1, i)}", str(i % 4), *(sentences(1, 9 * i + k) for k in range(4)))]
    write(data / "hellaswag/hellaswag_val_full.txt", "\n".join(lines) + "\n")
    folder = data / "olmo_oe_eval/arc_easy/rc_0shot"
    write_json(folder / "config.json", {"task_name": "arc_easy", "task_config": {"split": "validation", "num_shots": 0,
                                                                                "primary_metric": "acc_uncond"}})
    requests = []
    for i in range(3):
        texts = [sentences(1, 7 * i + k) for k in range(4)]
        doc = {"query": f"Question: {sentences(1, i)}\nAnswer:", "choices": texts, "gold": i % 4, "id": str(i)}
        requests += [{"request_type": "loglikelihood", "doc": doc, "doc_id": i, "idx": k, "label": i % 4,
                      "request": {"context": doc["query"], "continuation": " " + text}} for k, text in enumerate(texts)]
    write(folder / "requests.jsonl.gz", gzip.compress("".join(json.dumps(r) + "\n" for r in requests).encode()))


def make_inputs(folder: Path):
    for name in ("DIR", "MODEL"):
        write_model(folder / name)
    write(folder / "my/texts/one.txt", sentences(400, 1))
    write(folder / "my/texts/two.txt", sentences(400, 2))
    write(folder / "my/other.txt", sentences(60, 3))
    for name in ("text.txt", "held-out.txt"):
        write(folder / name, sentences(60, 4))
    write(folder / "prompts.txt", "Once upon a time\nThe old king\n")
    write_adapter(folder / "ADAPTER", "MODEL")
    write_lines(folder / "pairs.jsonl", [{"prompt": sentences(1, i), "chosen": sentences(2, i + 1), "rejected": sentences(2, i + 2)}
                                         for i in range(40)])
    write_lines(folder / "more.jsonl", [conversation(3 * i + 1) for i in range(40)])
    write_lines(folder / "talks.jsonl", [conversation(3 * i) for i in range(40)])
    context = {"messages": conversation(5)["messages"]}
    write_json(folder / "conversation.json", context)
    write(folder / "tokenizer_config.json", (folder / "DIR/tokenizer_config.json").read_bytes())
    write_json(folder / "contexts.json", [{"name": "multi_turn", **context}])
    data = folder / "data"
    write_tasks(data)
    write_json(data / "instruction-data.json", [instruction(2 * i) for i in range(30)])
    write_json(data / "alpaca_en_demo.json", [instruction(2 * i + 1) for i in range(30)])
    write_json(data / "gpteacher_toolformer.json", [instruction(3 * i) for i in range(30)])
    for i in range(12):
        write_json(data / f"toolbench/answer/G1_answer/{i}.json", tool_answer(4 * i))
