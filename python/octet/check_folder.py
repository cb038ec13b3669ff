"""Whether other programs load a folder of 8-bit weights:

    python -m octet.check_folder DIR [--judge vllm|compressed-tensors|transformers]... [--json]

vllm: its published rules (octet/_servers.py), by names, types and shapes.  compressed-tensors: its configuration and its
decompression of every weight.  transformers: the model itself, and logits of a few tokens. A judge whose package is not
installed is skipped. Exit status: 0 where all that ran pass, 1 where one does not, 2 for a folder that is none."""

from __future__ import annotations

import argparse
import json
import struct
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import _servers

__all__ = ["JUDGES", "Verdict", "check"]

TOKENS = 16


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
    words = []
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


JUDGES = {"vllm": vllm, "compressed-tensors": compressed_tensors, "transformers": transformers}


def check(folder, judges=tuple(JUDGES)) -> list[Verdict]:
    """folder: of config.json and .safetensors files."""
    folder = Path(folder)
    read_tensors(folder)
    return [JUDGES[name](folder) for name in judges]


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m octet.check_folder", description=__doc__.splitlines()[0])
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--judge", action="append", choices=list(JUDGES), help="this one alone; repeatable")
    parser.add_argument("--json", action="store_true")
    flags = parser.parse_args(arguments)
    try:
        verdicts = check(flags.folder, flags.judge or tuple(JUDGES))
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
