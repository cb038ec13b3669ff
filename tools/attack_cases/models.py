"""A model folder with a tokenizer and a chat template, and what is done to such: adapters, PTQ, evaluation tasks."""
import gzip
import json
import struct

from attack_cases.case import EXTREMES, LEVELS, TINY, Case, mutated, mutated_text

# Of the program alone, so that what takes memory without bound is seen before the machine has none.
LIMITED = ["bash", "-c", 'ulimit -v 4000000; exec "$0" "$@"']
SPECIALS = ["<|bos|>", "<|im_start|>", "<|im_end|>", "<|eos|>"]
CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + "
          "'<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def limited(*words):
    return [*LIMITED, "OCTET", *words]


def byte_letters():
    """The letter that stands for each byte in the vocabularies of byte-level BPE."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def tokenizer_json():
    letters = byte_letters()
    vocab = {letter: i for i, letter in enumerate(letters)}
    merges = [("s", "c"), ("sc", "a"), ("l", "e"), ("s", "t"), ("e", "p")]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    added = [{"id": len(vocab) + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, text in enumerate(SPECIALS)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": [list(pair) for pair in merges]}}


def model_files(shop):
    """m/: a model that can be spoken to."""
    if not hasattr(shop, "model"):
        shop.call("train", "t.yaml", "--quiet", "--set", "model.vocab=320", "--set", "model.seq=128", "--set", "out=big")
        shop.call("convert", "big", "m", "--quiet")
        shop.model = {"m/" + name: shop.get("m/" + name) for name in ("config.json", "model.safetensors")}
        lines = TINY.splitlines(keepends=True)[1:]
        shop.model["m.yaml"] = "model: {path: m, seq: 64}\n" + "".join(lines)
        shop.model["m/tokenizer.json"] = json.dumps(tokenizer_json())
        shop.model["m/tokenizer_config.json"] = json.dumps(
            {"bos_token": "<|bos|>", "eos_token": "<|eos|>", "chat_template": CHATML, "model_max_length": 128})
        for name in ("m.yaml", "m/tokenizer.json", "m/tokenizer_config.json"):
            shop.put(name, shop.model[name].encode())
    return dict(shop.model)


def header_of(whole):
    n = struct.unpack("<Q", whole[:8])[0]
    return json.loads(whole[8:8 + n]), whole[8 + n:]


def file_of(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def adapter(shop):
    """Adapters of a run and of PEFT, before a base that is theirs or not."""
    chooser = shop.random("adapter")
    files = model_files(shop)
    if not hasattr(shop, "peft"):
        shop.call("train", "m.yaml", "--quiet", "--set", "lora.rank=2", "--set", "out=lora")
        shop.call("convert", "lora", "peft", "--adapter-only", "--quiet")
        shop.peft = {name: shop.get("peft/" + name) for name in ("adapter_config.json", "adapter_model.safetensors")}
    config, weights = json.loads(shop.peft["adapter_config.json"]), shop.peft["adapter_model.safetensors"]
    uses = (["inspect", "p"], ["generate", "--model", "p", "--prompt", "a", "--max-tokens", "2"],
            ["convert", "p", "o"], ["eval", "--model", "p", "--data", "text.txt", "--max-tokens", "64"])
    variants = {"whole": shop.peft, "no_weights": {"adapter_config.json": shop.peft["adapter_config.json"]},
                "no_config": {"adapter_model.safetensors": weights}, "binary": {"adapter_model.bin": b"\x80\x04pickle"}}
    for key in config:
        for value in chooser.sample([0, -1, 2**31, 2**63, 1e308, None, "", "../m", "/etc", "\x1b[31m", [], {}, True, ["x" * 9999]], 5):
            variants[f"{key}={ascii(value)[:16]}"] = shop.peft | {"adapter_config.json": json.dumps(config | {key: value}).encode()}
    header, data = header_of(weights)
    for name in [name for name in header if name != "__metadata__"][:6]:
        for what, change in (("gone", None), ("shape", {"shape": [1, 1]}), ("large", {"shape": [2**62, 4]}), ("type", {"dtype": "F8_E4M3"}),
                             ("offset", {"data_offsets": [0, 2**63]})):
            new = {k: v for k, v in header.items() if k != name} if change is None else header | {name: header[name] | change}
            variants[f"{what}_{name[-24:]}"] = shop.peft | {"adapter_model.safetensors": file_of(new, data)}
    for i in range(40):
        variants[f"random_{i}"] = shop.peft | {"adapter_model.safetensors": mutated(chooser, weights[:600]) + weights[600:]}
        variants[f"random_config_{i}"] = shop.peft | {"adapter_config.json": mutated(chooser, shop.peft["adapter_config.json"])}
    for what, adapter_files in variants.items():
        words = chooser.choice(uses)
        yield Case(f"adapter/{what}_{words[0]}", limited(*words, "--quiet"),
                   shop.base() | files | {"p/" + name: bytes_ for name, bytes_ in adapter_files.items()},
                   binary_output=words[0] == "generate", changes=("o.*",))
    for value in EXTREMES:
        for key in ("lora.rank", "lora.alpha", "lora.dropout", "lora.targets"):
            yield Case(f"adapter/{key}={ascii(value)[1:-1]}",
                       limited("train", "m.yaml", "--quiet", "--set", "train.steps=1", "--set", "lora.rank=2", "--set",
                               f"{key}={value}"), shop.base() | files)


def ptq(shop):
    chooser = shop.random("ptq")
    files = model_files(shop)
    common = ["ptq", "--model", "m", "--tokenizer", "bytes", "--calib", "text.txt", "--out", "q", "--samples", "1", "--seq", "16", "--quiet"]
    formats = ["e4m3", "e5m2", "hif8", "int8", "mxfp8", "fp8-block"]
    methods = ["direct", "max", "percentile", "algorithm1", "smoothquant", "gptq"]
    for kind in formats:
        for method in methods:
            yield Case(f"ptq/{kind}_{method}", limited(*common, "--format", kind, "--method", method), shop.base() | files)
    flags = {"--samples": None, "--seq": None, "--percentile": None, "--damping": None, "--max-tokens": None, "--batch": None,
             "--bias": None, "--keep": None, "--calib": ["/", "/dev/zero", "none", "m", "", "q", "text.txt,text.txt"],
             "--out": ["m", "/", "..", "", "text.txt", "a/b/c", "/dev/null"], "--model": ["q", "/", "text.txt", "m/config.json", ""]}
    for flag, values in flags.items():
        for value in values or chooser.sample(EXTREMES, 12):
            method = {"--percentile": "percentile", "--damping": "gptq"}.get(flag, chooser.choice(methods))
            yield Case(f"ptq/{flag}={ascii(value)[1:-1]}",
                       limited(*common, "--format", chooser.choice(formats), "--method", method, f"{flag}={value}"),
                       shop.base() | files, limit=60)
    header, data = header_of(shop.model["m/model.safetensors"])
    for name in [name for name in header if name != "__metadata__"]:
        begin, end = header[name]["data_offsets"]
        for what, pattern in (("nan", b"\xc0\x7f"), ("inf", b"\x80\x7f"), ("large", b"\x7f\x7f"), ("zero", b"\0\0"), ("tiny", b"\x01\x00")):
            for n in (2, end - begin):
                spoilt = data[:begin] + pattern * (n // 2) + data[begin + n:]
                yield Case(f"ptq/{what}_{n}_{name[-20:]}",
                           limited(*common, "--format", chooser.choice(formats), "--method", chooser.choice(methods)),
                           shop.base() | files | {"m/model.safetensors": file_of(header, spoilt)}, must_refuse=what in ("nan", "inf"))


DOCUMENTS = {
    "gsm8k": ("gsm8k/test.jsonl", {"question": "How many?", "answer": "One and one.\n#### 2"}),
    "lambada": ("lambada/lambada_test.jsonl", {"text": "a text of some words and the last"}),
    "svamp": ("svamp/SVAMP.json", {"ID": "1", "Body": "Two.", "Question": "How many?", "Equation": "( 1.0 + 1.0 )", "Answer": 2.0,
                                   "Type": "Addition"}),
    "piqa": ("olmo_oe_eval/piqa/rc_0shot/requests.jsonl.gz",
             {"request_type": "loglikelihood", "doc": {"goal": "g", "sol1": "a", "sol2": "b", "label": 0, "index": 1, "query": "Goal: g\nAnswer:",
                                                       "choices": ["a", "b"]}, "request": {"context": "Goal: g\nAnswer:", "continuation": " a"},
              "idx": 0, "task_name": "piqa", "doc_id": 0, "native_id": 1, "label": 0}),
    "hellaswag": ("olmo_oe_eval/hellaswag/rc_0shot/requests.jsonl.gz",
                  {"request_type": "loglikelihood", "doc": {"query": "q", "choices": ["a", "b", "c", "d"], "gold": 1, "index": 1},
                   "request": {"context": "q", "continuation": " a"}, "idx": 0, "task_name": "hellaswag", "doc_id": 0, "native_id": 1,
                   "label": 1})}


def tasks(shop):
    chooser = shop.random("tasks")
    files = model_files(shop)

    def packed(path, records):
        if path.endswith(".json"):
            data = records if isinstance(records, bytes) else json.dumps(records).encode()
        else:
            data = records if isinstance(records, bytes) else b"".join(json.dumps(record).encode() + b"\n" for record in records)
        return gzip.compress(data, mtime=0) if path.endswith(".gz") else data

    def case(what, task, path, records, *more):
        shots = ["--shots", "0"] if "gz" not in path else []
        data = {"data/" + path: packed(path, records)}
        if task == "gsm8k":
            data["data/gsm8k/train.jsonl"] = packed("x.jsonl", [DOCUMENTS["gsm8k"][1]] * 8)
        return Case(f"tasks/{task}_{what}",
                    limited("eval", "--model", "m", "--tasks", task, "--task-data", "data", "--limit", "2", "--quiet", *shots, *more),
                    shop.base() | files | data, changes=("r.jsonl",))

    values = [None, "", 0, -1, 2**63, 1e308, True, [], {}, "x" * 100_000, "\x1b[31m", "\ud800", ["a"], "<|im_end|>"]
    for task, (path, document) in DOCUMENTS.items():
        yield case("whole", task, path, [document] * 3)
        yield case("empty", task, path, b"")
        for what, data in (("nuls", bytes(99)), ("deep", b"[" * LEVELS), ("list", b"[]\n"), ("text", b"not JSON\n"), ("number", b"1e999\n")):
            yield case(what, task, path, data)
        for key in document:
            yield case(f"without_{key}", task, path, [{k: v for k, v in document.items() if k != key}] * 2)
            for value in chooser.sample(values, 6):
                yield case(f"{key}={ascii(value)[:16]}", task, path, [document | {key: value}] * 2)
        for inner in ("doc", "request"):
            for key in document.get(inner, {}):
                for value in chooser.sample(values, 4):
                    yield case(f"{inner}.{key}={ascii(value)[:16]}", task, path, [document | {inner: document[inner] | {key: value}}] * 2)
        text = json.dumps(document)
        for i in range(16):
            changed = mutated(chooser, text.encode()) if i % 2 else mutated_text(chooser, text, EXTREMES).encode()
            yield case(f"random_{i}", task, path, changed + b"\n")
        for flag in ("--shots", "--limit", "--batch", "--seq", "--max-documents"):
            for value in chooser.sample(EXTREMES, 3):
                yield case(f"{flag}={ascii(value)[1:-1]}", task, path, [document] * 3, f"{flag}={value}")
    for name in ("", "nll:", "perplexity:/", "nll:none", "nll:text.txt", "perplexity:/dev/zero", "hellaswag:xx", "../gsm8k", "\x1b[31m", "gsm8k,,svamp"):
        yield Case(f"tasks/named_{ascii(name)[1:-1]}", limited("eval", "--model", "m", "--tasks", name, "--task-data", "data", "--quiet"),
                   shop.base() | files, limit=60)


CLASSES = {"adapter": adapter, "ptq": ptq, "tasks": tasks}
