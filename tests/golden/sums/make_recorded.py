#!/usr/bin/env python3
"""Writes recorded.npz and proposals.txt: a part of what tools/record_sums.py recorded on an H100.

Usage: tests/golden/sums/make_recorded.py FOLDER (of record_sums.py). Needs numpy.

Of each product NAME: NAME_a [m, k] and NAME_b [n, k] codes, NAME_y, and where there are such NAME_c
(a bias: one row), NAME_sa [m, blocks], NAME_sb [n, blocks].
"""
import json
import pathlib
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "tools"))
import record_sums as record  # noqa: E402

# section -> product, result -> rows and columns that are kept
KEPT = {
    "blocks": {("line_square_e4m3_e4m3_256_any_f32", 0): (4, 6),
               ("square_line_e4m3_e4m3_256_any_f32", 0): (4, 6),
               ("line_line_e4m3_e4m3_256_any_f32", 0): (4, 6),
               ("line_square_e5m2_e4m3_256_any_f32", 0): (4, 6),
               ("line_line_ragged", 0): (2, 3), ("line_square_c", 0): (2, 3),
               ("rows_f32_fast", 0): (2, 3), ("rows_f32_slow", 0): (2, 3)},
    "epilogues": {("fp8_1_slow", 0): (2, 3), ("fp8_2_slow", 0): (2, 3), ("fp8_3_fast", 0): (2, 3),
                  ("fp8_6_fast", 0): (2, 3), ("fp8_9_fast", 0): (2, 3)},
    "half": {("bf16_tiny_16", 0): (24, 32), ("bf16_huge_32", 0): (8, 12),
             ("bf16_special_64", 0): (8, 12), ("bf16_epilogue_2", 0): (2, 3),
             ("bf16_epilogue_6", 0): (2, 3), ("fp16_any_32", 0): (8, 12),
             ("fp16_normal_256", 0): (2, 3), ("f32_any_16", 0): (8, 12),
             ("f32_any_256", 0): (2, 3)},
    "splits": {("few_16_16_4096_f32_fast", 2): (2, 2)},
}
MMA = {"e4m3_e4m3_any_2_c": ("e4m3", "e4m3", 1020), "e5m2_e4m3_mean_2_c": ("e5m2", "e4m3", 1120),
       "bf16_bf16_any_2_c": ("bf16", "bf16", 1420), "f32_f32_any_2_c": ("f32", "f32", 1620)}


def codes(rows: list, cols: int, dtype: str, kind: str, seed: int) -> np.ndarray:
    """These rows of a matrix of so many columns."""
    at = np.array(rows, np.int64)[:, None] * cols + np.arange(cols, dtype=np.int64)[None]
    return record.table(kind, dtype)[record.places(at, seed)]


def product_arrays(p: record.Product, y: np.ndarray, size: tuple) -> dict:
    rows, cols = record.sampled(p.m, 16)[:size[0]], record.sampled(p.n, 24)[:size[1]]
    kept = {"a": codes(rows, p.k, p.a, p.kind, p.seed), "y": y[:size[0], :size[1]],
            "b": codes(cols, p.k, p.b, p.kind, p.seed + 1)}
    if p.c:
        kept["c"] = codes(rows, p.n, p.c, "normal", p.seed + 2)[:, cols]
    if p.bias:
        kept["c"] = codes([0], p.n, p.y, "normal", p.seed + 3)[:, cols]
    if p.scales != "whole":
        of_a, of_b = (p.scales.split() * 2)[:2]
        for name, mode, outer, seed, taken in (("sa", of_a, p.m, p.seed + 4, rows),
                                               ("sb", of_b, p.n, p.seed + 5, cols)):
            grid = record.scale_grid(p, mode, outer, seed)
            kept[name] = grid[[i // 128 if mode == "square" else i for i in taken]]
    return kept


def mma_arrays(name: str, y: np.ndarray) -> dict:
    a, b, seed = MMA[name]
    kind, cols = name.split("_")[2], 64 // record.BYTES[a]
    kept = {"a": codes(range(16), cols, a, kind, seed), "y": y[:16],
            "b": codes(range(8), cols, b, kind, seed + 1),
            "c": codes(range(16), 8, "f32", kind, seed + 2)}
    if a == "f32":
        kept["a"], kept["b"] = (kept[x] & np.uint32(0xFFFFE000) for x in ("a", "b"))
    return kept


def main(folder: str) -> None:
    path, kept = pathlib.Path(folder), {}
    lines = [json.loads(line) for line in open(path / "sums.jsonl")]
    products = {line["product"]["name"]: line for line in lines if "product" in line}
    for section, wanted in KEPT.items():
        arrays = np.load(path / f"{section}.npz")
        for (name, result), size in wanted.items():
            p = record.Product(**products[name]["product"])
            for what, array in product_arrays(p, arrays[f"{name}:{result}"], size).items():
                kept[f"{name}_{what}"] = array
    arrays = np.load(path / "mma.npz")
    for name in MMA:
        for what, array in mma_arrays(name, arrays[name]).items():
            kept[f"mma_{name}_{what}"] = array
    here = pathlib.Path(__file__).parent
    np.savez_compressed(here / "recorded.npz", **kept)
    with open(here / "proposals.txt", "w") as out:
        out.write("# cuBLASLt 13.1 on an H100, tools/record_sums.py: product, algorithms proposed, "
                  "distinct results among them\n")
        for name in np.load(path / "proposals.npz").files:
            algorithms = products[name.split(":")[0]]["algorithms"]
            distinct = len({one["result"] for one in algorithms})
            out.write(f"{name.split(':')[0]} {len(algorithms)} {distinct}\n")


if __name__ == "__main__":
    main(sys.argv[1])
