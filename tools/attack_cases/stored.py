"""Files of tensors: safetensors, model folders, shards, and files of quantized data."""
import json
import struct

from attack_cases.case import LEVELS, Case, mutated, mutated_text

NUMBERS = [0, -1, 1, 3, 7, 8, 255, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 1e308,
           -0.5]
TYPES = ["F32", "F8_E4M3", "U8", "BF16", "I16", "F64", "U32", "BOOL", "F8", "", "\x1b]0;x\x07", "f32", None, 1, [], {}]


def file_of(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(shape=(2, 2), dtype="F32", offsets=(0, 16)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def safetensors(shop):
    chooser = shop.random("safetensors")
    files = {f"length_{n}": file_of({"a": tensor()}, bytes(16), n) for n in
             (0, 1, 7, 8, 2**20, 10**8, 10**8 + 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1)}
    files |= {"empty": b"", "short": b"\1\0\0", "no_json": file_of(b"{"), "list": file_of(b"[]"), "null": file_of(b"null"),
              "deep": file_of(b"[" * LEVELS), "deep_objects": file_of(b'{"a":' * LEVELS), "nul": file_of(b"\0" * 64),
              "twice": file_of(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                               b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\0"),
              "overlap": file_of({"a": tensor(), "b": tensor(offsets=(8, 24))}, bytes(24)),
              "hole": file_of({"a": tensor(), "b": tensor(offsets=(20, 36))}, bytes(36)),
              "many": file_of({f"t{i}": tensor((0,), offsets=(0, 0)) for i in range(20_000)}),
              "long_name": file_of({"n" * 1_000_000: tensor()}, bytes(16)),
              "surrogate": file_of(b'{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\0"),
              "no_utf8": file_of(b'{"\xff\xfe":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\0")}
    for name in ("\x1b]0;owned\x07", "a\nb", "\u009b2J", "\u202ename", "__metadata__", "", "a\x00b", "../../x"):
        files[f"name_{ascii(name)[1:-1][:20]}"] = file_of({name: tensor()}, bytes(16))
    for number in NUMBERS:
        files[f"shape_{number}"] = file_of({"a": tensor((number, 2))}, bytes(16))
        files[f"shape_{number}_0"] = file_of({"a": tensor((number, 0), offsets=(0, 0))})
        files[f"begin_{number}"] = file_of({"a": tensor(offsets=(number, 16))}, bytes(16))
        files[f"end_{number}"] = file_of({"a": tensor(offsets=(0, number))}, bytes(16))
    for kind in TYPES:
        files[f"type_{ascii(kind)[:12]}"] = file_of({"a": tensor(dtype=kind)}, bytes(16))
    whole = shop.get(f"run/ckpt/{shop.newest()}/model.safetensors")
    head = 8 + struct.unpack("<Q", whole[:8])[0]
    for i in range(150):
        spoilt = mutated(chooser, whole[:head])
        files[f"random_{i}"] = spoilt + whole[head:]
    for name, data in files.items():
        yield Case(f"safetensors/{name}", ["OCTET", "inspect", "a.safetensors"] + (["--json"] if len(name) % 2 else []),
                   {"a.safetensors": data})


HF = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
      "vocab_size": 256, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
      "tie_word_embeddings": False}


def model_folder(shop):
    chooser = shop.random("model_folder")
    weights = shop.get(f"run/ckpt/{shop.newest()}/model.safetensors")
    for key in HF:
        for value in NUMBERS + ["x", None, [], {}, True, "\x1b[31m"]:
            if chooser.random() < 0.6:
                continue
            config = json.dumps(HF | {key: value}, allow_nan=True)
            command = chooser.choice([["plan", "t.yaml", "--set", "model.path=m"],
                                      ["eval", "--model", "m", "--tokenizer", "bytes", "--data", "text.txt"]])
            yield Case(f"model_folder/{key}_{ascii(value)[:12]}", ["OCTET", *command],
                       shop.base() | {"m/config.json": config, "m/model.safetensors": weights})
    indices = [{"weight_map": {"a": name}} for name in
               ("x.safetensors", "../x.safetensors", "/etc/passwd", "x.safetensors\0y", "", ".", "a/b.safetensors", "m" * 5000,
                "\x1b]0;x\x07", 1, None)]
    indices += [{}, [], {"weight_map": []}, {"weight_map": {}}, {"weight_map": {"a": {"b": 1}}}, "x", 3]
    for i, index in enumerate(indices):
        yield Case(f"model_folder/index_{i}", ["OCTET", "inspect", "m"],
                   {"m/model.safetensors.index.json": json.dumps(index), "m/config.json": json.dumps(HF),
                    "x.safetensors": file_of({"a": tensor()}, bytes(16)), "secret": b"not to be read"})
    for i in range(60):
        yield Case(f"model_folder/random_{i}", ["OCTET", "plan", "t.yaml", "--set", "model.path=m"],
                   shop.base() | {"m/config.json": mutated(chooser, json.dumps(HF).encode())})


def npy(header, data=b"", version=(1, 0)):
    text = header.encode("latin-1")
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version[0] == 1 else "<I", len(text)) + text + data


def shards(shop):
    chooser = shop.random("shards")
    tokens = b"".join(struct.pack("<H", chooser.randrange(256)) for _ in range(2000))
    good = "{'descr': '<u2', 'fortran_order': False, 'shape': (2000,), }".ljust(117) + "\n"
    files = {"a.npy": {"whole": npy(good, tokens), "cut": npy(good, tokens[:77]), "none": npy(good)}, "a.bin": {}}
    for shape in ("()", "(2000", "(-1,)", "(9223372036854775807,)", "(18446744073709551616,)", "(2,1000)", "(0,)", "x"):
        files["a.npy"][f"shape_{shape}"] = npy(good.replace("(2000,)", shape), tokens)
    for kind in ("<u1", "<f4", ">u2", "|O", "<i8", "\x1b[31m", "[('a', '<u2')]", "<u2'", ""):
        files["a.npy"][f"type_{ascii(kind)}"] = npy(good.replace("<u2", kind), tokens)
    for version in ((2, 0), (3, 0), (9, 9), (0, 0)):
        files["a.npy"][f"version_{version[0]}"] = npy(good, tokens, version)
    for n in (0, 1, 3, 65, 4000):
        files["a.bin"][f"bytes_{n}"] = tokens[:n]
    files["a.bin"]["large_ids"] = b"\xff" * 4000
    for i in range(60):
        files["a.npy"][f"random_{i}"] = mutated(chooser, npy(good, tokens)[:140]) + tokens
    for name, group in files.items():
        for what, data in group.items():
            extra = ["--set", f"data.token_bytes={chooser.choice((0, 2, 4))}"] if chooser.random() < 0.3 else []
            yield Case(f"shards/{name}_{what}", ["OCTET", "train", "t.yaml", "--set", f"data.train=[{name}]", "--set",
                                                 "train.steps=1", *extra], shop.base() | {name: data})


def dequantize(shop):
    chooser = shop.random("dequantize")
    whole = shop.call("formats", "quantize", "--format", "e4m3", "--granularity", "1x4", "--shape", "8,8", stdin=shop.floats)
    expanded = shop.call("formats", "quantize", "--format", "e4m3", "--granularity", "1x16", "--shape", "8,8", "--expand",
                         stdin=shop.floats)
    files = {"whole": whole, "expanded": expanded}

    def changed(source, change):
        n = struct.unpack("<Q", source[:8])[0]
        header = json.loads(source[8:8 + n])
        change(header)
        return file_of(header, source[8 + n:])

    wrong = {}
    for key, values in {"format": ["e5m2", "hif8", "bf16", "f32", "", "\x1b[31m"], "math": ["evil", "", "EXACT"],
                        "granularity": ["row", "tensor", "4x4", "1x0", "1x-1", "1x9223372036854775807", "2x3", "",
                                        "9223372036854775807x9223372036854775807", "1x4294967297", "\x07"]}.items():
        for value in values:
            wrong[f"{key}_{ascii(value)[1:13]}"] = changed(
                expanded if key == "math" else whole, lambda h, k=key, v=value: h["__metadata__"].update({k: v}))
            files[f"expanded_{key}_{ascii(value)[1:13]}"] = changed(
                expanded, lambda h, k=key, v=value: h["__metadata__"].update({k: v}))
    for kind in ("F8_E5M2", "I8", "BOOL", "F32"):
        wrong[f"codes_{kind}"] = changed(whole, lambda h, k=kind: h["codes"].update({"dtype": k}))
    for shape in ([64, 1], [1, 64], [4, 4, 4], [64], [], [2**62, 0], [0, 2**62], [2**32, 2**32]):
        wrong[f"shape_{'_'.join(map(str, shape))}"] = changed(whole, lambda h, s=shape: h["codes"].update({"shape": s}))
    for name in ("codes", "scale", "__metadata__"):
        wrong[f"without_{name}"] = changed(whole, lambda h, n=name: h.pop(n))
    for rows in (2**62, 2**63 - 1, 10**12):
        files[f"nothing_of_{rows}"] = file_of(
            {"__metadata__": {"format": "e4m3", "granularity": "tensor"}, "codes": tensor((rows, 0), "F8_E4M3", (0, 0)),
             "scale": tensor((1, 1), "F32", (0, 4))}, bytes(4))
    for i in range(70):
        files[f"random_{i}"] = mutated(chooser, chooser.choice((whole, expanded)))
    for group, must_refuse in ((files, False), (wrong, True)):
        for name, data in group.items():
            as_file = chooser.random() < 0.5
            yield Case(f"dequantize/{name}", ["OCTET", "formats", "dequantize"] + (["q"] if as_file else []), {"q": data},
                       stdin=None if as_file else data, must_refuse=must_refuse, binary_output=True)


def graph(shop):
    chooser = shop.random("graph")
    source = shop.call("plan", "t.yaml", "--graph").decode()
    passes = [line.split()[0] for line in shop.call("opt", "--list").decode().splitlines()[1:]]
    values = [*map(str, NUMBERS), "nan", "inf", "-inf", "e4m3", "f32", "gemm", "%0", "%999999", "add", "\x1b[31m"]
    lines = source.splitlines()
    for i in range(260):
        kind = chooser.randrange(4)
        if kind == 0:
            spoilt = mutated(chooser, source.encode())
        elif kind == 1:
            spoilt = mutated_text(chooser, source, values).encode()
        else:
            some = lines.copy()
            for _ in range(chooser.choice((1, 3))):
                at = chooser.randrange(len(some))
                some[at] = chooser.choice(("", some[-1], chooser.choice(lines), mutated_text(chooser, some[at], values)))
            spoilt = "\n".join(some).encode()
        names = chooser.sample(passes, chooser.choice((0, 1, 2)))
        if chooser.random() < 0.3:
            names.append("simplify")
        extra = (["--passes", ",".join(names)] if names else []) + (["--target", "cpu"] if chooser.random() < 0.2 else [])
        yield Case(f"graph/{i}", ["OCTET", "opt", "g.ir", *extra], {"g.ir": spoilt}, binary_output=True)
    for value in ("nan", "inf", "-nan", "1e999"):
        text = "graph g logical {\n  %0 = input batch \"x\" : f32[2, 4]\n}\n"
        spoilt = mutated_text(chooser, text, [value])
        yield Case(f"graph/value_{value}", ["OCTET", "opt", "-", "--passes", "simplify"], stdin=spoilt.encode())


CLASSES = {"safetensors": safetensors, "model_folder": model_folder, "shards": shards, "dequantize": dequantize,
           "graph": graph}
