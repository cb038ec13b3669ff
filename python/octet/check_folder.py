"""Whether other programs load an exported model, and compute what Octet did:

    python -m octet.check_folder DIR|FILE.gguf [--judge vllm|compressed-tensors|transformers|llama.cpp]... [--json]

vllm: its published rules (octet/_servers.py), by names, types and shapes.  compressed-tensors: its configuration and its
decompression of every weight.  transformers: the model itself, and logits of a few tokens.  llama.cpp: a GGUF file, as the
package xllamacpp runs it. Where octet_verify.json lies in the folder (of a GGUF file: FILE.gguf.octet_verify.json), which
`octet convert --verify` writes, transformers in single precision and llama.cpp repeat its rows: the largest difference of the
log-probabilities that it holds, and how many most probable tokens are the same (but those that Octet's own margin leaves open).
A judge whose package is not installed is skipped. Exit status: 0 where all that ran pass, 1 where one does not, 2 for a folder
that is none."""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import _servers

__all__ = ["JUDGES", "Verdict", "check"]

TOKENS = 16
DIGEST = "octet_verify.json"
# The largest difference of log-probabilities that passes: of weights as they are, in single precision; of 8-bit weights, whose
# inputs Octet quantizes as the folder says and transformers does not; of llama.cpp, whose products round activations to the type
# of weights other than F32, with Q8_0 to 8 bits.
TOLERANCE = {"exact": 2e-3, "quantized": 0.5, "llama.cpp": 0.25, "llama.cpp q8_0": 1.0}


@dataclass
class Verdict:
    """result: pass, fail or skipped.  words: the schemes, what is wrong, or why it was skipped."""

    judge: str
    result: str
    words: list[str] = field(default_factory=list)


class BadFolder(Exception):
    """One line."""


def read_config(folder: Path) -> dict:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadFolder(f"[check_folder] {path}: expected a model's configuration, got {error}") from None
    if not isinstance(config, dict):
        raise BadFolder(f"[check_folder] {path}: expected an object, got {type(config).__name__}")
    return config


def read_tensors(folder: Path) -> dict:
    """(dtype, shape) by name, of every .safetensors file; of NAME.weight_shape its two values too."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with open(path, "rb") as file:
                (n,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(min(n, path.stat().st_size)))
                header.pop("__metadata__", None)
                for name, entry in header.items():
                    tensors[name] = (entry["dtype"], entry["shape"])
                    if name.endswith(".weight_shape") and entry["shape"] == [2] and entry["dtype"] == "I64":
                        file.seek(8 + n + entry["data_offsets"][0])
                        tensors[name + "_values"] = list(struct.unpack("<2q", file.read(16)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
            raise BadFolder(f"[check_folder] {path}: expected a safetensors file, got {error!r}") from None
    if not tensors:
        raise BadFolder(f"[check_folder] {folder}: expected .safetensors files, got none")
    return tensors


def vllm(folder: Path) -> Verdict:
    faults, schemes = _servers.judge(read_config(folder), read_tensors(folder))
    return Verdict("vllm", "fail" if faults else "pass", faults or sorted(schemes))


def _open_all(folder: Path) -> dict:
    """Open files by the names of their tensors."""
    from safetensors import safe_open
    files = [safe_open(path, "pt") for path in sorted(folder.glob("*.safetensors"))]
    return {name: file for file in files for name in file.keys()}


def _scheme_of(config, module: str):
    """The group of compressed-tensors' configuration that a module is in; None where it is ignored."""
    if _servers._matches(module, config.ignore or []):
        return None
    groups = config.config_groups.values()
    return next((g for g in groups if _servers._matches(module, g.targets)),
                next((g for g in groups if "Linear" in g.targets), None))


def compressed_tensors(folder: Path) -> Verdict:
    """Every quantized weight as the package decompresses it: its shape, and finite values."""
    name = "compressed-tensors"
    quantization = read_config(folder).get("quantization_config") or {}
    try:
        import torch
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationConfig
    except ImportError as error:
        return Verdict(name, "skipped", [f"not installed: {error}"])
    if quantization.get("quant_method") != name:
        return Verdict(name, "skipped", [f"quant_method {quantization.get('quant_method')}"])
    try:
        config = QuantizationConfig.model_validate({k: v for k, v in quantization.items() if k != "kv_cache_scheme"})
    except Exception as error:  # noqa: BLE001: whatever their validation raises is the verdict
        return Verdict(name, "fail", [f"quantization_config: {' '.join(str(error).split())}"])
    held = _open_all(folder)
    faults, formats = [], set()
    for linear in _servers.linears_of(read_tensors(folder)):
        scheme = _scheme_of(config, linear.name)
        if scheme is None or not linear.is_quantized:
            continue
        form = scheme.format or config.format
        own = {n.rpartition(".")[2]: f.get_tensor(n) for n, f in held.items() if n.rpartition(".")[0] == linear.name}
        try:
            weight = BaseCompressor.get_value_from_registry(getattr(form, "value", form)).decompress(own, scheme)["weight"]
            if tuple(weight.shape) != tuple(linear.shape) or not torch.isfinite(weight.float()).all():
                raise ValueError(f"expected finite values {linear.shape}, got {tuple(weight.shape)}")
            formats.add(str(getattr(form, "value", form)))
        except Exception as error:  # noqa: BLE001: as above
            faults.append(f"{linear.name}: {' '.join(str(error).split())}")
    return Verdict(name, "fail" if faults else "pass", faults or sorted(formats))


def read_digest(path: Path) -> dict | None:
    if not path.exists():
        return None
    try:
        digest = json.loads(path.read_text())
        rows = digest["rows"]
        if digest["format"] != 1 or not all(len(row["tokens"]) == len(row["positions"]) for row in rows):
            raise ValueError("another format")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadFolder(f"[check_folder] {path}: expected the digest of `octet convert --verify`, got {error!r}") from None
    return digest


@dataclass
class Comparison:
    """Log-probabilities beside a digest's. got: by id, those that a judge gives behind a token; first: its most probable token."""

    tolerance: float
    largest: float = 0.0
    positions: int = 0
    same: int = 0
    close: int = 0  # positions with another first token, that a difference within the tolerance may have

    def add(self, position: dict, got: dict, first: int):
        expected = {token: logit - position["log_sum"] for token, logit in position["logits"]}
        differences = [abs(got[token] - value) for token, value in expected.items() if token in got]
        worst = max(differences, default=float("inf"))
        self.largest = max(self.largest, worst if worst == worst else float("inf"))
        top = position["logits"][0]
        self.positions += 1
        self.same += first == top[0]
        if first != top[0] and first in expected:
            self.close += top[1] - position["log_sum"] - expected[first] <= 2 * self.tolerance

    def verdict(self, judge: str, words: list[str]) -> Verdict:
        is_same = self.same + self.close == self.positions
        said = [*words, f"largest difference {self.largest:.3g} of {self.tolerance:g}", f"top-1 {self.same}/{self.positions}"]
        return Verdict(judge, "pass" if is_same and self.largest <= self.tolerance else "fail", said)


def _compare_logits(model, digest: dict, tolerance: float, words: list[str]) -> Verdict:
    import torch
    compared = Comparison(tolerance)
    for row in digest["rows"]:
        with torch.no_grad():
            logits = model(torch.tensor([row["tokens"]])).logits[0].double()
        for position, values in zip(row["positions"], torch.log_softmax(logits, -1), strict=True):
            compared.add(position, {token: values[token].item() for token, _ in position["logits"]}, values.argmax().item())
    return compared.verdict("transformers", words)


def llama_server(file: Path, n_ctx: int):
    """llama.cpp with a model, on the CPU, its cache in F32."""
    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = str(file), n_ctx, 1, False
    params.n_gpu_layers, params.verbosity, params.fit_params = 0, -1, False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xllamacpp.Server(params)


def llama_cpp(file: Path) -> Verdict:
    """The file itself, and the most probable tokens behind each beginning of the digest's rows."""
    name = "llama.cpp"
    if file.suffix.lower() != ".gguf":
        return Verdict(name, "skipped", ["no GGUF file"])
    digest = read_digest(file.with_name(f"{file.name}.{DIGEST}"))
    try:
        import xllamacpp  # noqa: F401
    except ImportError as error:
        return Verdict(name, "skipped", [f"not installed: {error}"])
    rows = digest["rows"] if digest else [{"tokens": list(range(1, TOKENS)), "positions": []}]
    kinds = {"f32": "exact", "q8_0": "llama.cpp q8_0"}
    compared = Comparison(TOLERANCE[kinds.get((digest or {}).get("weights"), name)])
    try:
        server = llama_server(file, n_ctx=256)
        for row in rows:
            for n in range(1, len(row["tokens"]) + 1) if row["positions"] else [len(row["tokens"])]:
                answer = server.handle_completions({"prompt": row["tokens"][:n], "n_predict": 1, "n_probs": 64, "temperature": 0.0,
                                                    "cache_prompt": False})
                if "choices" not in answer:
                    raise ValueError(str(answer)[:200])
                first = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
                if row["positions"]:
                    compared.add(row["positions"][n - 1], {one["id"]: one["logprob"] for one in first}, first[0]["id"])
    except Exception as error:  # noqa: BLE001: whatever it raises is the verdict
        return Verdict(name, "fail", [" ".join(str(error).split())[:200]])
    return compared.verdict(name, []) if digest else Verdict(name, "pass", ["no digest"])


def _load(folder: Path, dtype):
    import transformers
    options = {}
    if (read_config(folder).get("quantization_config") or {}).get("quant_method") == "fp8":
        options["quantization_config"] = transformers.FineGrainedFP8Config(dequantize=True)  # no kernel on a CPU
    model, told = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", output_loading_info=True, **options)
    faults = [f"{key}: {sorted(map(str, told[key]))[:4]}" for key in told if told[key]]
    return model.eval(), faults


def transformers(folder: Path) -> Verdict:
    """The model with its own type of values, or where that is refused in BF16, and logits of a few tokens."""
    name = "transformers"
    read_config(folder)
    try:
        import torch
        import transformers as package
    except ImportError as error:
        return Verdict(name, "skipped", [f"not installed: {error}"])
    package.utils.logging.set_verbosity_error()
    package.utils.logging.disable_progress_bar()
    digest = read_digest(folder / DIGEST)
    words = []
    if digest is not None:
        is_quantized = read_config(folder).get("quantization_config") is not None
        try:
            model, faults = _load(folder, "auto" if is_quantized else torch.float32)
            if faults:
                return Verdict(name, "fail", faults)
            tolerance = TOLERANCE["quantized" if is_quantized else "exact"]
            return _compare_logits(model, digest, tolerance, [str(model.dtype).removeprefix("torch.")])
        except Exception as error:  # noqa: BLE001: whatever it raises is the verdict
            if not is_quantized:
                return Verdict(name, "fail", [" ".join(str(error).split())[:200]])
    for dtype in ("auto", torch.bfloat16):
        try:
            model, faults = _load(folder, dtype)
            with torch.no_grad():
                ids = torch.arange(TOKENS)[None] % model.config.vocab_size
                is_finite = bool(torch.isfinite(model(ids).logits).all())
            if faults or not is_finite:
                return Verdict(name, "fail", faults or ["logits: expected finite values"])
            return Verdict(name, "pass", [*words, str(model.dtype).removeprefix("torch.")])
        except Exception as error:  # noqa: BLE001: whatever it raises is the verdict
            words.append(f"{'its own type of values' if dtype == 'auto' else 'BF16'}: {' '.join(str(error).split())[:200]}")
    return Verdict(name, "fail", words)


JUDGES = {"vllm": vllm, "compressed-tensors": compressed_tensors, "transformers": transformers, "llama.cpp": llama_cpp}


def check(folder, judges=None) -> list[Verdict]:
    """folder: of config.json and .safetensors files, or a GGUF file. judges: names of JUDGES, without them all that read it."""
    if not isinstance(folder, (str, os.PathLike)):
        raise BadFolder(f"[check_folder] expected a folder's path, got {folder!r}")
    if judges is not None and (not isinstance(judges, (list, tuple)) or not judges or any(name not in tuple(JUDGES) for name in judges)):
        raise BadFolder(f"[check_folder] judges: expected a list of {', '.join(JUDGES)}, got {judges!r}")
    folder = Path(folder)
    if folder.suffix.lower() == ".gguf":
        if not folder.is_file():
            raise BadFolder(f"[check_folder] {folder}: expected a GGUF file, got none")
        return [llama_cpp(folder) if name == "llama.cpp" else Verdict(name, "skipped", ["a GGUF file"]) for name in judges or ["llama.cpp"]]
    read_tensors(folder)
    return [JUDGES[name](folder) for name in judges or [name for name in JUDGES if name != "llama.cpp"]]


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m octet.check_folder", allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("folder", metavar="DIR|FILE.gguf", type=Path)
    parser.add_argument("--judge", action="append", choices=list(JUDGES), help="this one alone; repeatable")
    parser.add_argument("--json", action="store_true")
    flags = parser.parse_args(arguments)
    try:
        verdicts = check(flags.folder, flags.judge)
    except BadFolder as error:
        print(f"octet: {error}", file=sys.stderr)
        return 2
    if flags.json:
        print(json.dumps([asdict(verdict) for verdict in verdicts]))
    for verdict in verdicts if not flags.json else []:
        print(f"{verdict.judge}: {verdict.result}" + (f" ({'; '.join(verdict.words[:4])})" if verdict.words else ""))
    return 1 if any(verdict.result == "fail" for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
