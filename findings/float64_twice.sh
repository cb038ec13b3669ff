#!/usr/bin/env bash
# How float64 becomes a shorter float in NumPy with ml_dtypes, and in tensorstore, whose types are those of ml_dtypes.
# guess: with one rounding, everywhere: 17 and a trillionth, just above the middle of 16 and 18, is 18 in E4M3FN, and
#        1 + 2 ** -8 + 2 ** -40 is 1.0078125 in bfloat16.
# seen:  astype to the types of ml_dtypes rounds twice, first to float32, where the trillionth is lost, and gives 16 and 1.
#        tensorstore casts the same arrays once to the 8-bit types, 18, but twice to bfloat16, and to float16, where NumPy
#        rounds once.
. "$(dirname "$0")/common.sh"
with_packages ml_dtypes==0.6.0 tensorstore==0.1.86 numpy==2.4.6 <<'END'
import ml_dtypes
import numpy as np
import tensorstore

def both(number, name, kind):
    array = np.array([number])
    one = float(array.astype(kind)[0])
    other = float(tensorstore.cast(tensorstore.array(array), tensorstore.dtype(name)).read().result()[0])
    print(f"{number!r} to {name}: NumPy {one}, tensorstore {other}")
    return one, other

above, below = 17 + 1e-12, 19 - 1e-12
ok = both(above, "float8_e4m3fn", ml_dtypes.float8_e4m3fn) == (16, 18)
ok &= both(below, "float8_e4m3fn", ml_dtypes.float8_e4m3fn) == (20, 18)
ok &= both(1 + 2**-3 + 2**-40, "float8_e5m2", ml_dtypes.float8_e5m2) == (1, 1.25)
ok &= both(1 + 2**-8 + 2**-40, "bfloat16", ml_dtypes.bfloat16) == (1, 1)
ok &= both(1 + 2**-11 + 2**-40, "float16", np.float16) == (1 + 2**-10, 1)
raise SystemExit(not ok)
END
