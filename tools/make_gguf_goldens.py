#!/usr/bin/env python3
"""Makes tests/fixtures/gguf/blocks.txt: blocks of a GGUF file's types, and what the gguf package makes of them.

    PYTHON tools/make_gguf_goldens.py

PYTHON has the package `gguf`. A line is a type, the bytes of its blocks and its values, as FP32 bit patterns, in hexadecimal digits; the
last line is the FNV-1a digest of 10,000 blocks of Q8_0 that the package's quantizer makes of numbers (values()), whose bytes are those
of ggml's reference quantizer.
"""

from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

OUT = Path(__file__).resolve().parent.parent / "tests/fixtures/gguf"
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "MXFP4"]
BLOCKS = 10000


def blocks_of(name, random):
    """Random codes with scales that are finite; one block of the large types."""
    kind = gguf.GGMLQuantizationType[name]
    elems, size = gguf.GGML_QUANT_SIZES[kind]
    n = 24 if elems == 1 else 3 if elems == 32 else 1
    data = random.integers(0, 256, (n, size), dtype=np.uint8)
    halves = {"Q4_1": [0, 2], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}.get(name, [0])
    if elems > 1 and name != "MXFP4":
        for at in halves:
            data[:, at:at + 2] = random.normal(0, 0.1, n).astype(np.float16).reshape(-1, 1).view(np.uint8)
    if name == "MXFP4":
        data[:, 0] = [0, 1, 130]
    if elems == 1:
        data = random.normal(0, 1, n).astype(np.float32).reshape(-1, 1).view(np.uint8)[:, -size:]
    return kind, data


def values():
    """BLOCKS x 32 numbers of a linear congruential generator, a power of two for each block; each 100th block is zeros."""
    state, mask = 1, (1 << 64) - 1
    out = np.empty((BLOCKS, 32), np.float32)
    for block in range(BLOCKS):
        numbers = []
        for _ in range(33):
            state = (state * 6364136223846793005 + 1442695040888963407) & mask
            numbers.append(state >> 33)
        exponent = -20 - numbers[32] % 40
        out[block] = (np.array(numbers[:32], np.int64) - (1 << 30)).astype(np.float32) * np.float32(2.0 ** exponent)
        if block % 100 == 0:
            out[block] = 0
    return out


def digest(data):
    state = 0xCBF29CE484222325
    for byte in data:
        state = ((state ^ byte) * 0x100000001B3) & ((1 << 64) - 1)
    return state


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    random, lines = np.random.default_rng(7), []
    for name in TYPES:
        kind, data = blocks_of(name, random)
        got = dequantize(data.reshape(1, -1), kind).astype(np.float32).ravel()
        lines.append(f"{name} {data.tobytes().hex()} {got.astype('>f4').tobytes().hex()}")
    lines.append(f"Q8_0 {digest(quantize(values(), gguf.GGMLQuantizationType.Q8_0).tobytes()):016x}")
    (OUT / "blocks.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
