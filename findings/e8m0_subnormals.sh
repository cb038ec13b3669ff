#!/usr/bin/env bash
# Which power of two a number between the two smallest of E8M0, 2^-127 and 2^-126, becomes.
# guess: the nearer one: 1.0625, 1.25 and 1.4375 times 2^-127 become 2^-127 (code 0), 1.75 times it 2^-126 (code 1).
# seen:  gfloat 0.5.2 does so; in ml_dtypes 0.6.0 everything above 2^-127 becomes 2^-126, from float32 and from bfloat16. Between
#        2^-126 and 2^-125 both take the nearer one.
. "$(dirname "$0")/common.sh"
with_packages ml_dtypes==0.6.0 gfloat==0.5.2 numpy==2.4.6 <<'END'
import gfloat
import ml_dtypes
import numpy as np
from gfloat.formats import format_info_ocp_e8m0

factors = [1.0, 1.0625, 1.25, 1.4375, 1.75]
small, normal = (np.array([f * 2.0**e for f in factors], np.float32) for e in (-127, -126))

def powers(x):
    return np.log2(x.astype(ml_dtypes.float8_e8m0fnu).astype(np.float64)).tolist()

def others(x):
    return [float(np.log2(gfloat.round_float(format_info_ocp_e8m0, float(v)))) for v in x]

print("2^-127 times", factors, "becomes 2^: ml_dtypes", powers(small), "from bfloat16", powers(small.astype(ml_dtypes.bfloat16)), "gfloat", others(small))
print("2^-126 times them: ml_dtypes", powers(normal), "gfloat", others(normal))
up, near = [-127, -126, -126, -126, -126], [-127, -127, -127, -127, -126]
ok = powers(small) == up and powers(small.astype(ml_dtypes.bfloat16)) == up and others(small) == near
raise SystemExit(not (ok and powers(normal) == others(normal) == [n + 1 for n in near]))
END
