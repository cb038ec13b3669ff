#!/usr/bin/env python3
"""Writes products.npz: a small part of the recorded products of an H100 and an H200.

Usage: tests/golden/sums/make_golden.py RECORDED (the folder with hopper_products.npz and
hopper_products_2.npz, of 2048 x 2048 x K products by PyTorch 2.11 with cuBLASLt 13). Needs numpy.
"""
import pathlib
import sys

import numpy as np

# K -> rows and columns that are kept
SIZES = {16: (8, 12), 32: (8, 12), 48: (8, 12), 64: (8, 12), 128: (8, 12), 160: (8, 12),
         256: (4, 6), 1024: (2, 3), 4096: (2, 3), 14336: (1, 1)}
KINDS = {"e4m3_e4m3": ["normal", "wide", "mean"], "e5m2_e4m3": ["normal", "wide", "mean"],
         "e4m3_e5m2": ["normal", "mean"]}
FIRST = [f"{pair}_{kind}_{k}" for pair, kinds in KINDS.items() for kind in kinds
         for k in (32, 48, 160, 256, 1024)]
FIRST += ["e4m3_e4m3_mean_4096", "e5m2_e4m3_mean_14336"]
FIRST += [f"bf16_{kind}_{k}" for kind in ("normal", "mean") for k in (16, 64, 256)]
SECOND = [f"{kind}_64" for kind in ("zeros_beside_448", "half_zeros", "relu", "cancels",
                                    "all_zero", "minus_zero")]
SECOND += ["nan_256", "e5m2_inf_256", "scales_f32", "scales_bf16", "bias_bf16", "e4m3_result",
           "rows_bf16_128", "rows_bf16_1024"]


def part(name: str, array: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """What the first rows and columns of a product have of one of its arrays."""
    what = name.rsplit("_", 1)[1]
    if what in ("a", "b"):
        return array[:rows if what == "a" else cols]
    if what in ("fast", "slow"):
        return array[:rows, :cols]
    if what == "bias":
        return array[:cols]
    if array.ndim == 2:  # scales by row: sa [m, 1], sb [1, n]
        return array[:rows] if what == "sa" else array[:, :cols]
    return array


def main(folder: str) -> None:
    kept = {}
    for file, cases in (("hopper_products.npz", FIRST), ("hopper_products_2.npz", SECOND)):
        arrays = np.load(pathlib.Path(folder) / file)
        for case in cases:
            rows, cols = SIZES[arrays[case + "_a"].shape[1]]
            if case in ("nan_256", "e5m2_inf_256"):
                rows, cols = 16, 12
            for name in arrays.files:
                if name.startswith(case + "_") and "_" not in name[len(case) + 1:]:
                    kept[name] = part(name, arrays[name], rows, cols)
    np.savez_compressed(pathlib.Path(__file__).with_name("products.npz"), **kept)


if __name__ == "__main__":
    main(sys.argv[1])
