#!/usr/bin/env bash
# What np.round with decimals makes of float16.
# guess: the nearest float16 to the number in so many decimals: 7000 stays 7000 with one.
# seen:  NumPy 2.4.6 multiplies by the power of ten in float16, as its documentation lets one work out: 7 becomes infinite with four
#        decimals, 7000 with one. From five decimals on each number becomes NaN, 0 and 0.1234 too. bfloat16 and float32 keep 7, and
#        float8_e4m3fn has NaN with two.
. "$(dirname "$0")/common.sh"
with_packages ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import ml_dtypes
import numpy as np

def rounded(kind, number, *decimals):
    with np.errstate(all="ignore"):
        found = [float(np.round(np.array([number]).astype(kind), d).astype(float)[0]) for d in decimals]
    print(f"{np.dtype(kind).name} {number} with {decimals} decimals: {found}")
    return found

def same(found, *expected):
    return np.array_equal(found, expected, equal_nan=True)

nan, inf = float("nan"), float("inf")
ok = same(rounded(np.float16, 7.0, 0, 3, 4, 5, 6), 7, 7, inf, nan, nan)
ok &= same(rounded(np.float16, 7000.0, 0, 1, 2), 7000, inf, inf)
ok &= same(rounded(np.float16, 0.0, 4, 5), 0, nan)
ok &= same(rounded(np.float16, 0.1234, 5), nan)
ok &= same(rounded(np.float32, 7.0, 4, 6), 7, 7) and same(rounded(ml_dtypes.bfloat16, 7.0, 4, 6), 7, 7)
ok &= same(rounded(ml_dtypes.float8_e4m3fn, 7.0, 1, 2), 7, nan)
raise SystemExit(not ok)
END
