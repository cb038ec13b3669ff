#!/usr/bin/env python3
"""What kernels of a card reach of their floors, from `octet bench step --by-kernel --json`, as src/train/card_rows.def has it.

  tools/row_shares.py HEAD_DIM=BENCH.json... > src/train/card_rows.def

A row's share is the sum of its launches' floors over the sum of their times, in all files. Attention's depends on the
width of its heads, so each file says which its model has. Rows that take less than 0.1 ms in all are left out. Only the
standard library.
"""

import collections
import json
import re
import sys

RATES = ("memory", "gemm f32", "gemm bf16", "gemm e4m3")  # GB/s, GFLOP/s
KERNEL = re.compile(r"step \S+: (\w+) .*: ([\w ]+)$")


def main():
    if len(sys.argv) < 2 or not all(re.match(r"\d+=", name) for name in sys.argv[1:]):
        sys.exit(__doc__)
    floors, times = collections.Counter(), collections.Counter()
    between_ms = launches = 0
    for argument in sys.argv[1:]:
        head_dim, _, path = argument.partition("=")
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)
        rates = {row["name"]: row["value"] for row in rows}
        for row in rows:
            found = KERNEL.match(row["name"])
            if found:
                key = " ".join(found.groups()) + (f" {head_dim}" if found[1].startswith("attention") else "")
                floors[key] += row["floor"]
                times[key] += row["value"]
                launches += int(row["shape"].split()[0])
            elif row["name"].endswith(": (between kernels)"):
                between_ms += row["value"]
    print("// What kernels of an NVIDIA H200 reach of their floors: OCTET_ROW(op and row, share). Made by tools/row_shares.py\n"
          "// from the runs of docs/results/h200/step-speeds.csv that are marked `fit`.")
    for name in RATES:
        print(f"OCTET_RATE({name.replace(' ', '_')}, {rates[name] * 1e9:.4g})")
    print(f"OCTET_RATE(launch, {between_ms / launches / 1e3:.3g})")
    for key in sorted(times):
        if times[key] >= 0.1 and floors[key] >= 0.02 * times[key]:  # the others cost a launch
            print(f'OCTET_ROW("{key}", {floors[key] / times[key]:.3f})')


if __name__ == "__main__":
    main()
