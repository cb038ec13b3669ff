#!/usr/bin/env bash
# The smallest and the largest value in a scalar quantizer of 8 or 4 bits, trained on data between 0 and 1.
# guess: both come back exactly: code 0 is 0, code 255 is 1, with steps of 1 / 255.
# seen:  faiss-cpu 1.15.1 cuts to a code and gives the middle between it and the next: 0 becomes 0.00196 and 1 becomes 1.00196 (4 bits:
#        0.0333 and 1.0333). Of a one-hot vector of 1024 the zeros add 1024 * 0.00196^2 = 0.0039 to its squared length (4 bits: 1.1).
. "$(dirname "$0")/common.sh"
with_packages faiss-cpu==1.15.1 numpy==2.4.6 <<'END'
import faiss
import numpy as np

one_hot = np.eye(1024, dtype=np.float32)
seen = {}
for bits, kind in ((8, faiss.ScalarQuantizer.QT_8bit), (4, faiss.ScalarQuantizer.QT_4bit)):
    index = faiss.IndexScalarQuantizer(1024, kind)
    index.train(one_hot)
    index.add(one_hot[:1])
    back = index.reconstruct(0).astype(np.float64)
    seen[bits] = [float(f"{v:.3g}") for v in (back[1], back[0] - 1, back[1:] @ back[1:])]
    print(f"{bits} bits: 0 comes back as {back[1]:.5f}, 1 as {back[0]:.5f}; the squares of 1023 zeros add up to {back[1:] @ back[1:]:.4f}")
raise SystemExit(seen != {8: [0.00196, 0.00196, 0.00393], 4: [0.0333, 0.0333, 1.14]})
END
