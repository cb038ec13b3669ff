"""What `octet ptq` and `octet convert` write, in every format, method and granularity, judged by the programs that load it
(octet.check_folder): vLLM's published rules always, compressed-tensors and transformers where they are installed."""

import itertools
import json
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from octet import check_folder

EVERY = "OCTET_EVERY_FOLDER" in os.environ  # all combinations, a minute; else a set that covers each choice
ROOT = Path(__file__).resolve().parents[2]
HIDDEN, FFN, HEAD = 256, 128, 128
KV = {"self_attn.k_proj": (HEAD, HIDDEN), "self_attn.v_proj": (HEAD, HIDDEN)}
SHAPES = {"self_attn.q_proj": (HIDDEN, HIDDEN), **KV, "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (FFN, HIDDEN),
          "mlp.up_proj": (FFN, HIDDEN), "mlp.down_proj": (HIDDEN, FFN)}
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "intermediate_size": FFN,
          "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": HEAD, "vocab_size": 256,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
          "hidden_act": "silu", "bos_token_id": None, "eos_token_id": None}


def write_model(folder):
    """A Llama with random weights in BF16."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(7)
    shapes = {"model.embed_tokens.weight": (256, HIDDEN), "lm_head.weight": (256, HIDDEN), "model.norm.weight": (HIDDEN,),
              "model.layers.0.input_layernorm.weight": (HIDDEN,), "model.layers.0.post_attention_layernorm.weight": (HIDDEN,)}
    shapes.update({f"model.layers.0.{name}.weight": shape for name, shape in SHAPES.items()})
    header, data = {}, b""
    for name, shape in shapes.items():
        values = rng.standard_normal(shape) * 0.08 if len(shape) == 2 else np.ones(shape)
        part = values.astype(ml_dtypes.bfloat16).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "text.txt").write_bytes(bytes(rng.integers(97, 123, 400).tolist()))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("check") / "model"
    write_model(folder)
    return folder


def combinations():
    """(format, method, weights, activations) that ptq takes: "" is the method's choice."""
    for form in ("e4m3", "e5m2", "hif8", "int8"):
        for method in ("direct", "max", "percentile", "smoothquant", "algorithm1", "gptq"):
            is_int = form == "int8"
            if (method == "gptq" and not is_int) or (method == "algorithm1" and is_int):
                continue
            is_cast = method == "direct" and not is_int
            weights = [""] if is_cast or method == "algorithm1" else ["", "tensor", "channel", "group"]
            activations = [""] if method == "algorithm1" else ["", "none", "tensor", "token"]
            for pair in itertools.product(weights, activations):
                yield form, method, *pair
    for form, method in itertools.product(("mxfp8", "fp8-block"), ("direct", "max", "smoothquant")):
        yield form, method, "", ""


def granularity(form, method, weights, activations):
    """What a combination's own choices and its method's come to."""
    is_current = form == "int8" and method == "direct"
    if activations in ("", "tensor"):
        activations = "none" if method == "gptq" and not activations else "current" if is_current else "fixed"
    return weights or ("group" if method == "gptq" else "tensor"), activations


def covering():
    """Of each format every method, and every granularity by one method or another."""
    seen, taken = set(), []
    for combination in sorted(combinations(), key=hash_of):
        form, method = combination[:2]
        keys = {(form, method)}
        if form not in ("e5m2", "hif8"):  # these have one layout
            keys.add((form, *granularity(*combination)))
        if not keys <= seen:
            taken.append(combination)
        seen |= keys
    return taken


def hash_of(combination):
    """An order that mixes methods, the same each time."""
    return sum((i + 1) * ord(c) * 2654435761 for i, c in enumerate("/".join(combination))) % 65521


def what_is_written(form, method, weights, activations):
    """The row of docs/ptq.md's table that a combination belongs to."""
    if form in ("e5m2", "hif8"):
        return "E5M2, HiF8"
    if form in ("mxfp8", "fp8-block"):
        return {"mxfp8": "MXFP8", "fp8-block": "block FP8"}[form]
    name = form.upper()
    weights, activations = granularity(form, method, weights, activations)
    if weights == "group" and (name == "E4M3" or activations != "none"):
        return "E4M3, weights in groups" if name == "E4M3" else "INT8, weights in groups, inputs too"
    if activations == "none":
        return f"{name}, weights alone"
    return "INT8, inputs with one scale a tensor at run time" if activations == "current" else f"{name}, weights and inputs"


def table_of_the_page():
    """By row: the results of vllm, compressed-tensors and transformers that docs/ptq.md promises."""
    lines = (ROOT / "docs" / "ptq.md").read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("| written | vLLM"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in
            itertools.takewhile(lambda line: line.startswith("|"), lines[first + 2:])]
    return {row[0]: {"vllm": row[1], "compressed-tensors": row[2], "transformers": row[3]} for row in rows}


def quantize(program, model, out, combination, *more):
    form, method, weights, activations = combination
    flags = [*(("--weights", weights) if weights else ()), *(("--activations", activations) if activations else ())]
    program("ptq", "--model", model, "--format", form, "--method", method, "--calib", model / "text.txt", "--out", out,
            "--samples", "1", "--seq", "16", "--threads", "1", "--quiet", *flags, *more)


def promised(cell):
    return "pass" if cell.startswith("yes") else "fail" if cell.startswith("no") else "skipped"


def test_the_page_promises_what_every_judge_finds(program, model, tmp_path):
    table, seen, wrong = table_of_the_page(), set(), []

    def judge(numbered):
        i, combination = numbered
        quantize(program, model, tmp_path / str(i), combination)
        return combination, check_folder.check(tmp_path / str(i), ["vllm"])[0]

    with ThreadPoolExecutor(2) as pool:
        for combination, verdict in pool.map(judge, enumerate(combinations() if EVERY else covering())):
            row = what_is_written(*combination)
            seen.add(row)
            if verdict.result != promised(table[row]["vllm"]):
                wrong.append((combination, row, verdict))
    assert not wrong, wrong[:3]
    assert seen == set(table)


# One of each row, in the programs themselves.
ONE_OF_A_ROW = {what_is_written(*c): c for c in reversed(list(combinations()))}


@pytest.mark.parametrize("row", sorted(ONE_OF_A_ROW))
def test_the_programs_load_what_the_page_promises(program, model, tmp_path, row):
    pytest.importorskip("transformers")
    pytest.importorskip("compressed_tensors")
    quantize(program, model, tmp_path / "q", ONE_OF_A_ROW[row])
    for verdict in check_folder.check(tmp_path / "q", ["compressed-tensors", "transformers"]):
        assert verdict.result == promised(table_of_the_page()[row][verdict.judge]), verdict


def logits_of_transformers(folder, ids):
    """In f32, of a source in BF16: every rounding that is left is a quantizer's. MXFP8 is loaded in BF16 alone, which holds its
    weights and powers of two; other scales it would round."""
    import torch
    import transformers
    is_mx = "mxfp8" in (folder / "config.json").read_text()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16 if is_mx else torch.float32, attn_implementation="eager").eval()
    model.hf_quantizer.compressor.decompress_model(model)
    for values in itertools.chain(model.parameters(), model.buffers()):
        values.data = values.data.float() if values.is_floating_point() else values.data
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


# Bytes that the calibration text has not, so that values lie beyond static scales.
@pytest.mark.parametrize("combination", [("mxfp8", "max", "", ""), ("int8", "max", "", ""), ("e4m3", "max", "", ""),
                                         ("int8", "gptq", "", ""), ("int8", "gptq", "tensor", "")], ids=str)
def test_logits_are_those_of_transformers_in_f32(program, model, tmp_path, combination):
    pytest.importorskip("transformers")
    pytest.importorskip("compressed_tensors")
    import octet
    quantize(program, model, tmp_path / "q", combination)
    ids = np.random.default_rng(5).integers(0, 256, 48).tolist()
    ours = np.asarray(octet.load(str(tmp_path / "q"), tokenizer="bytes").logits(ids))
    far = np.abs(ours - logits_of_transformers(tmp_path / "q", ids)).max(axis=1)
    # They divide by a scale where a product with its inverse is taken here: an input on a boundary may move by a step.
    assert np.quantile(far, 0.9) < 1e-4 and far.max() < 0.1, far


def spoiled(model, tmp_path, program, combination, more=(), **changes):
    """The verdict of vLLM's rules on a folder whose quantization_config is changed."""
    quantize(program, model, tmp_path / "q", combination, *more)
    path = tmp_path / "q" / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"].update(changes)
    path.write_text(json.dumps(config))
    return check_folder.check(tmp_path / "q", ["vllm"])[0]


def test_linears_that_are_fused_have_one_scheme(program, model, tmp_path):
    verdict = spoiled(model, tmp_path, program, ("e4m3", "max", "", ""), ("--keep", "*.k_proj"))
    assert verdict.result == "fail" and "expected one scheme for what is fused" in verdict.words[0]
    keep = itertools.chain(*(("--keep", f"*.{x}_proj") for x in ("q", "k", "v", "down")))
    quantize(program, model, tmp_path / "all", ("e4m3", "max", "", ""), *keep)
    assert check_folder.check(tmp_path / "all", ["vllm"])[0].result == "pass"


@pytest.mark.parametrize("changes, words", [
    ({"format": "int-quantized", "config_groups": {}}, "expected it in `ignore`, or 8 bits and a group"),
    ({"ignore": ["lm_head", "model.layers.0.mlp.down_proj"]}, "expected no 8 bits in what is ignored"),
    ({"quant_method": "octet"}, "no loader")], ids=["no group", "ignored", "own"])
def test_faults_are_named(program, model, tmp_path, changes, words):
    verdict = spoiled(model, tmp_path, program, ("int8", "max", "", ""), **changes)
    assert verdict.result == "fail" and any(words in word for word in verdict.words), verdict


def test_the_head_and_partial_blocks_are_named(program, model, tmp_path):
    verdict = spoiled(model, tmp_path, program, ("e4m3", "max", "", ""), ("--quantize-head",))
    assert verdict.result == "fail" and "lm_head" in verdict.words[0]
    tensors = {f"model.layers.0.{name}.{word}": entry for name, rows in (("self_attn.q_proj", 192), ("mlp.down_proj", 192))
               for word, entry in (("weight", ("F8_E4M3", [rows, 128])), ("weight_scale_inv", ("F32", [2, 1])))}
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    faults, _ = check_folder._servers.judge(config, tensors)
    assert len(faults) == 1 and "q_proj: expected rows in whole blocks" in faults[0]


def test_the_command_says_what_it_found(program, model, tmp_path, capsys):
    quantize(program, model, tmp_path / "q", ("int8", "gptq", "", ""))
    assert check_folder.main([str(tmp_path / "q"), "--judge", "vllm"]) == 0
    assert capsys.readouterr().out == "vllm: pass (WNA16)\n"
    for form, words in (("fp8-block", ["Fp8"]), ("fp8-tensor", ["W8A16Fp8"])):
        program("convert", model, tmp_path / form, "--dtype", form, "--quiet")
        assert check_folder.main([str(tmp_path / form), "--judge", "vllm", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == [{"judge": "vllm", "result": "pass", "words": words}]
    assert check_folder.main([str(tmp_path)]) == 2
    assert "expected .safetensors files, got none" in capsys.readouterr().err
    (tmp_path / "q" / "model.safetensors").write_bytes(b"\xff" * 100)
    assert check_folder.main([str(tmp_path / "q")]) == 2
    assert "expected a safetensors file" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, words", [((3,), "expected a folder's path, got 3"), (("nowhere", "vllm"), "judges: expected a list of vllm, .*, got 'vllm'"),
                                              (("nowhere", ["nobody"]), "got .'nobody'."), (("nowhere", []), "got ..")])
def test_arguments_are_named(arguments, words):
    with pytest.raises(check_folder.BadFolder, match=words):
        check_folder.check(*arguments)
