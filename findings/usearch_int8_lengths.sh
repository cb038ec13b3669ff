#!/usr/bin/env bash
# Distances of an index whose vectors are kept in 8-bit integers: metric l2sq, dtype i8.
# guess: values are scaled and rounded, those beyond the range cut off; a vector and its double are apart.
# seen:  usearch 2.26.6 divides each vector by its own length, times 127: [1, 2, 3, 4], its double and its tenth are the same
#        codes, and their distances are 0, also by the metric l2sq. In f16, bf16 and e4m3 of the same index they are apart.
. "$(dirname "$0")/common.sh"
with_packages usearch==2.26.6 numpy==2.4.6 <<'END'
import numpy as np
from usearch.index import Index

vectors = np.outer([1, 2, 0.1], [1, 2, 3, 4]).astype(np.float32)
seen = {}
for dtype in ("f32", "f16", "bf16", "e4m3", "i8"):
    index = Index(ndim=4, metric="l2sq", dtype=dtype)
    index.add(np.arange(3), vectors)
    found = index.search(vectors[0], 3)
    seen[dtype] = {int(key): round(float(d)) for key, d in zip(found.keys, found.distances)}
    print(f"{dtype:5} squared distances of [1, 2, 3, 4] to itself, twice and a tenth of it:", *(seen[dtype][i] for i in range(3)))
codes = [index.get(i).tolist() for i in range(3)]
print("codes in i8:", *codes)
apart = {0: 0, 1: 30, 2: 24}
raise SystemExit(seen != {"f32": apart, "f16": apart, "bf16": apart, "e4m3": apart, "i8": {0: 0, 1: 0, 2: 0}}
                 or codes != [[23, 46, 69, 92]] * 3)
END
