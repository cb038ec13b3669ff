"""Which folders of 8-bit weights vLLM has a scheme for: its published rules as a table, judged by names and shapes alone.

Sources. Schemes, the order in which they are tried, ignored and fused linears: vllm-project/vllm at commit
be696453ee1bf3b7a2f652cc457b340d5a20c88c, model_executor/layers/quantization/compressed_tensors. MXFP8: pull request 38815,
released with vLLM 0.19.0. quant_method fp8: quantization/fp8.py, whose modules_to_not_convert and whose rule for blocks of
fused linears (all but the last whole) later versions have. Kernels may ask for more of shapes, and GPUs for their generation."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

COMMIT = "be696453ee1bf3b7a2f652cc457b340d5a20c88c"
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
ACTIVATION_FORMATS = ("naive-quantized", "int-quantized", "float-quantized", "nvfp4-pack-quantized")
EMBEDDINGS = ("embed_tokens", "embed_in", "wte", "wpe")
HEADS = ("lm_head", "embed_out")


@dataclass(frozen=True)
class Scheme:
    """weights: type, strategies.  inputs: "none", or "static" or "dynamic" with a strategy or "any".  formats: of
    compressed-tensors; a group's own, or else the folder's.  since: the first source that has it."""

    name: str
    weights: tuple[str, tuple[str, ...]]
    inputs: tuple[str, ...]
    formats: tuple[str, ...]
    tensor: str = "weight"
    dtype: str = "F8_E4M3"
    group: int = 0
    scales: str = ""
    since: str = COMMIT


# In the order in which they are tried.
SCHEMES = (
    Scheme("W8A8Mxfp8", ("float", ("group",)), ("any",), ("any",), group=32, scales="torch.uint8", since="#38815, 0.19.0"),
    Scheme("WNA16", ("int", ("channel", "group")), ("none",), ("pack-quantized",), tensor="weight_packed", dtype="I32"),
    Scheme("W8A8Fp8", ("float", ("tensor", "channel", "block")), ("dynamic any", "static tensor"), ACTIVATION_FORMATS),
    Scheme("W8A16Fp8", ("float", ("tensor", "channel", "block")), ("any",), ACTIVATION_FORMATS),
    Scheme("W8A8Int8, static", ("int", ("tensor", "channel")), ("static tensor",), ACTIVATION_FORMATS, dtype="I8"),
    Scheme("W8A8Int8, dynamic", ("int", ("tensor", "channel")), ("dynamic token",), ACTIVATION_FORMATS, dtype="I8"),
)


@dataclass
class Linear:
    """One linear of a folder: its module's name, [out, in], and its tensors as (dtype, shape) by their last word."""

    name: str
    shape: tuple[int, ...]
    tensors: dict = field(default_factory=dict)

    @property
    def is_quantized(self) -> bool:
        return "weight_packed" in self.tensors or self.tensors["weight"][0] in ("F8_E4M3", "F8_E5M2", "I8", "U8")


def linears_of(tensors: dict) -> list[Linear]:
    """tensors: (dtype, shape) by name, of all of a folder's files."""
    modules: dict[str, dict] = {}
    for name, entry in tensors.items():
        module, _, last = name.rpartition(".")
        modules.setdefault(module, {})[last] = entry
    linears = []
    for module, own in modules.items():
        is_embedding = module.rpartition(".")[2] in EMBEDDINGS
        weight = own.get("weight", own.get("weight_packed"))
        if weight is None or len(weight[1]) != 2 or is_embedding:
            continue
        shape = list(weight[1])
        if "weight_packed" in own and own.get("weight_shape_values"):
            shape = own["weight_shape_values"]
        linears.append(Linear(module, tuple(shape), own))
    return linears


def _matches(name: str, patterns) -> bool:
    return any(re.match(p[3:], name) if p.startswith("re:") else p == name for p in patterns)


def _inputs_of(args: dict | None) -> str:
    if not args:
        return "none"
    return f"{'dynamic' if args.get('dynamic') else 'static'} {args.get('strategy')}"


def _takes_inputs(scheme: Scheme, args: dict | None) -> bool:
    have = _inputs_of(args)
    if args and (args.get("num_bits") != 8 or args.get("symmetric", True) is not True):
        return False
    if args and scheme.name != "W8A16Fp8" and args.get("type") != scheme.weights[0]:
        return False
    return any(want in ("any", have) or (want == "dynamic any" and have.startswith("dynamic")) for want in scheme.inputs)


def find_scheme(weights: dict, inputs: dict | None, form: str) -> Scheme | None:
    """Of a group of compressed-tensors' config_groups; form: its format."""
    for scheme in SCHEMES:
        kind, strategies = scheme.weights
        is_weight = (weights.get("num_bits") == 8 and weights.get("type") == kind and weights.get("strategy") in strategies
                     and weights.get("symmetric", True) is True and not weights.get("dynamic"))
        is_group = scheme.group in (0, weights.get("group_size")) and scheme.scales in ("", weights.get("scale_dtype"))
        if is_weight and is_group and form in (scheme.formats if scheme.formats != ("any",) else (form,)):
            if _takes_inputs(scheme, inputs):
                return scheme
    return None


def _expected(scheme: Scheme, linear: Linear, weights: dict, inputs: dict | None) -> dict:
    """The tensors that the scheme reads, by their last word: dtypes and shapes."""
    rows, cols = linear.shape
    group = weights.get("group_size") or cols
    grids = {"tensor": [[1], [1, 1], []], "channel": [[rows, 1]], "group": [[rows, cols // group]]}
    block = weights.get("block_structure") or [128, 128]
    grids["block"] = [[math.ceil(rows / block[0]), math.ceil(cols / block[1])]]
    scale = ("U8",) if scheme.scales else ("F32", "BF16", "F16")
    expected = {scheme.tensor: ((scheme.dtype,), [[rows, cols]]), "weight_scale": (scale, grids[weights["strategy"]])}
    if scheme.tensor == "weight_packed":
        expected["weight_packed"] = (("I32",), [[rows, cols // 4]])
        expected["weight_shape"] = (("I64",), [[2]])
    if inputs and not inputs.get("dynamic") and scheme.name != "W8A16Fp8":
        expected["input_scale"] = (("F32", "BF16", "F16"), [[1], []])
    return expected


def _faults_of_shape(linear: Linear, expected: dict) -> list[str]:
    faults = []
    for word, (dtypes, shapes) in expected.items():
        got = linear.tensors.get(word)
        if got is None:
            faults.append(f"{linear.name}: expected a tensor {word}, got none")
        elif got[0] not in dtypes or list(got[1]) not in shapes:
            faults.append(f"{linear.name}.{word}: expected {' or '.join(dtypes)} {shapes[0]}, got {got[0]} {list(got[1])}")
    return faults


def _fused_faults(linears: list[Linear], kinds: dict) -> list[str]:
    """Linears that vLLM makes one of are ignored together, or have one scheme."""
    faults = []
    for parts in FUSED.values():
        stems = {x.name[: -len(parts[0])] for x in linears if x.name.endswith("." + parts[0])}
        for stem in sorted(stems):
            found = {part: kinds[stem + part] for part in parts if stem + part in kinds}
            if len(set(found.values())) > 1:
                faults.append(f"{stem}{{{', '.join(parts)}}}: expected one scheme for what is fused, got "
                              + ", ".join(f"{part} {kind}" for part, kind in found.items()))
    return faults


def _compressed_tensors(config: dict, linears: list[Linear]) -> tuple[list[str], set[str]]:
    faults, kinds = [], {}
    ignore, groups = config.get("ignore", []), list(config.get("config_groups", {}).values())
    for linear in linears:
        is_ignored = _matches(linear.name, ignore)
        kinds[linear.name] = "none"
        if is_ignored or linear.name.rpartition(".")[2] in HEADS:
            if linear.is_quantized:
                faults.append(f"{linear.name}: expected no 8 bits in {'what is ignored' if is_ignored else 'the head'}")
            continue
        group = next((g for g in groups if _matches(linear.name, g.get("targets", []))), None)
        group = group or next((g for g in groups if "Linear" in g.get("targets", [])), None)
        if group is None or not linear.is_quantized:
            faults.append(f"{linear.name}: expected it in `ignore`, or 8 bits and a group that targets it")
            continue
        weights, inputs = group["weights"], group.get("input_activations")
        form = group.get("format") or config.get("format")
        scheme = find_scheme(weights, inputs, form)
        if scheme is None:
            faults.append(f"{linear.name}: no scheme for {weights.get('type')} weights by {weights.get('strategy')}, "
                          f"inputs {_inputs_of(inputs)}, {form}")
            continue
        kinds[linear.name] = scheme.name
        faults += _faults_of_shape(linear, _expected(scheme, linear, weights, inputs))
    return faults + _fused_faults(linears, kinds), set(kinds.values()) - {"none"}


def _fp8(config: dict, linears: list[Linear]) -> tuple[list[str], set[str]]:
    faults, kinds = [], {}
    block = config.get("weight_block_size")
    kept = config.get("ignored_layers") or config.get("modules_to_not_convert") or []
    for linear in linears:
        is_kept = linear.name in kept or linear.name.rpartition(".")[2] in HEADS
        kinds[linear.name] = "none" if is_kept else "Fp8"
        if is_kept != (not linear.is_quantized):
            faults.append(f"{linear.name}: expected {'no 8 bits' if is_kept else '8 bits'} by modules_to_not_convert")
        if is_kept:
            continue
        rows, cols = linear.shape
        scales = [[math.ceil(rows / block[0]), math.ceil(cols / block[1])]] if block else [[1], []]
        word = "weight_scale_inv" if block else "weight_scale"
        faults += _faults_of_shape(linear, {"weight": (("F8_E4M3",), [[rows, cols]]), word: (("F32", "BF16"), scales)})
        parts = next((p for p in FUSED.values() if linear.name.rpartition(".")[2] in p[:-1]), None)
        if block and parts and rows % block[0]:
            faults.append(f"{linear.name}: expected rows in whole blocks of {block[0]}, as it is fused, got {rows}")
    return faults + _fused_faults(linears, kinds), set(kinds.values()) - {"none"}


def judge(config: dict, tensors: dict) -> tuple[list[str], set[str]]:
    """What hinders vLLM from loading a folder, and the schemes that it takes.

    config: of config.json, with its quantization_config.  tensors: (dtype, shape) by name."""
    quantization = config.get("quantization_config")
    if not quantization:
        return [], {"none"}
    linears = linears_of(tensors)
    method = quantization.get("quant_method")
    if method == "compressed-tensors":
        return _compressed_tensors(quantization, linears)
    if method == "fp8":
        return _fp8(quantization, linears)
    return [f"quant_method {method}: no loader"], set()
