"""A model folder whose weights are 2 W - q(W): the errors of a recipe's quantizer with the other sign. numpy alone."""

import json
import shutil
from pathlib import Path

import numpy as np

MAX_E4M3 = 448.0
POWER = ":power"  # of a recipe: recipe.block_scale: power
GROUPS = [("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("o_proj",), ("down_proj",)]
TENSOR = {"fp8_linear", "fp8_lm", "coat", "coat-fast"}
BLOCKS = {"fp8_block", "coat-block", "fp8_block" + POWER}
STATIC = {"scalify_fp8", "coat-static"}


def e4m3(x: np.ndarray) -> np.ndarray:
    """To nearest even, saturating; as f32."""
    x = np.clip(x.astype(np.float64), -MAX_E4M3, MAX_E4M3)
    exponent = np.maximum(np.frexp(np.abs(x))[1] - 1, -6)
    step = np.ldexp(1.0, exponent - 3)
    return (np.rint(x / step) * step).astype(np.float32)


def hif8(x: np.ndarray) -> np.ndarray:
    """HiFloat8: 3 bits of significand up to 2^3, 2 up to 2^7, 1 up to 2^15; ties away from zero. Weights alone reach neither end."""
    magnitude = np.abs(x.astype(np.float64))
    exponent = np.frexp(np.where(magnitude > 0, magnitude, 1))[1] - 1
    size = np.abs(exponent)
    bits = np.where(size <= 3, 3, np.where(size <= 7, 2, 1))
    step = np.ldexp(1.0, exponent - bits)
    value = np.floor(magnitude / step + 0.5) * step
    value = np.where(exponent < -15, np.ldexp(1.0, np.rint(np.log2(np.where(magnitude > 0, magnitude, 1))).astype(int)), value)
    return np.where(magnitude > 0, np.copysign(value, x), 0).astype(np.float32)


def scaled(x: np.ndarray, scale) -> np.ndarray:
    scale = np.asarray(scale, dtype=np.float32)
    return e4m3(x * (np.float32(1) / scale)) * scale


def power_of(amax: np.ndarray) -> np.ndarray:
    """The least power of two by which amax is at most the largest code; 1 of zeros."""
    ratio = np.where(amax > 0, amax.astype(np.float64) / MAX_E4M3, 1)
    return np.exp2(np.ceil(np.log2(ratio)))


def linear_of(amax: np.ndarray) -> np.ndarray:
    """The f32 by which amax becomes the largest code; 1 of zeros."""
    return np.where(amax > 0, np.maximum(amax * np.float32(1 / MAX_E4M3), np.float32(2.0**-100)), np.float32(1))


def in_blocks(x: np.ndarray, rows: int, cols: int, scale_of=power_of) -> np.ndarray:
    result = np.empty_like(x)
    for i in range(0, x.shape[0], rows):
        for j in range(0, x.shape[1], cols):
            block = x[i:i + rows, j:j + cols]
            amax = np.abs(block).max() if rows > 1 else np.abs(block).max(axis=1, keepdims=True)
            result[i:i + rows, j:j + cols] = scaled(block, scale_of(np.asarray(amax)))
    return result


def quantized(weights: list[np.ndarray], recipe: str) -> list[np.ndarray]:
    """q(W) of the linears that share a scale, as the recipe's definition has it."""
    amax = np.float32(max(np.abs(w).max() for w in weights))
    if recipe in TENSOR:
        return [scaled(w, amax * np.float32(1 / MAX_E4M3)) for w in weights]
    if recipe in STATIC:  # a power of two from the largest RMS
        rms = max(0.5 * np.log2(np.mean(np.square(w, dtype=np.float64))) for w in weights)
        return [scaled(w, 2.0 ** (np.ceil(rms - 0.5) - 1)) for w in weights]
    if recipe in BLOCKS:
        return [in_blocks(w, 128, 128, power_of if recipe.endswith(POWER) else linear_of) for w in weights]
    if recipe == "fp8_row":
        return [scaled(w, linear_of(np.abs(w).max(axis=1, keepdims=True))) for w in weights]
    if recipe == "mxfp8":
        return [in_blocks(w, 1, 32) if w.shape[1] % 32 else
                scaled(w.reshape(-1, 32), power_of(np.abs(w.reshape(-1, 32)).max(axis=1, keepdims=True))).reshape(w.shape)
                for w in weights]
    scale = amax * np.float32(1 / 15)  # hif8
    return [hif8(w * (np.float32(1) / scale)) * scale for w in weights]


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    data = np.memmap(path, dtype=np.uint8, mode="r")
    n_header = int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:8 + n_header].tobytes())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise SystemExit(f"real: {path}: expected F32 tensors, got '{name}' in {entry['dtype']}")
        first, last = entry["data_offsets"]
        tensors[name] = data[8 + n_header + first:8 + n_header + last].view(np.float32).reshape(entry["shape"])
    return tensors


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    header, at = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).tobytes())


def mirror_model(model: Path, recipe: str, folder: Path) -> Path | None:
    """The folder of the mirrored model; nothing where the recipe quantizes no weights."""
    if recipe not in TENSOR | STATIC | BLOCKS | {"fp8_row", "mxfp8", "hif8"}:
        return None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tensors = dict(read_safetensors(model / "model.safetensors"))
    layers = json.loads((model / "config.json").read_text())["num_hidden_layers"]
    for layer in range(layers):
        for group in GROUPS:
            names = [name for name in tensors if name.startswith(f"model.layers.{layer}.")
                     and any(name.endswith(f"{linear}.weight") for linear in group)]
            for name, codes in zip(names, quantized([np.asarray(tensors[name]) for name in names], recipe)):
                tensors[name] = 2 * np.asarray(tensors[name]) - codes
    write_safetensors(folder / "model.safetensors", tensors)
    for file in model.iterdir():
        if file.name != "model.safetensors":
            shutil.copy(file, folder)
    return folder
