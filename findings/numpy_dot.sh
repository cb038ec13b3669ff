#!/usr/bin/env bash
# Whether np.dot and @ give the same product of 8-bit floats, of bfloat16 and of 4-bit integers.
# guess: yes, as for every type of NumPy's own: of 8-bit floats both are float32, or both are rounded to the type.
# seen:  with ml_dtypes 0.6.0 the type is that of the function: @ and vecdot give float32 (int8 of int4), and np.dot, inner, vdot
#        and tensordot the type of the operands, rounded once. Of 300 ones @ gives 300 and dot 288 in E4M3FN; a product
#        beyond 448 is NaN by dot and right by @.
. "$(dirname "$0")/common.sh"
with_packages ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import warnings

import ml_dtypes
import numpy as np

warnings.simplefilter("ignore")
ways = {"@": lambda a, b: a @ b, "vecdot": np.vecdot, "dot": np.dot, "inner": np.inner, "vdot": np.vdot,
        "tensordot": lambda a, b: np.tensordot(a, b, 1)}

def products(kind, value, n):
    x = np.full(n, value, kind)
    got = {name: np.asarray(way(x, x)) for name, way in ways.items()}
    print(f"{n} times {value} in {np.dtype(kind).name}: " + ", ".join(f"{name} {float(y)} {y.dtype.name}" for name, y in got.items()))
    return [float(y) for y in got.values()], [y.dtype.name for y in got.values()]

ok = products(np.float16, 1, 300) == ([300] * 6, ["float16"] * 6)
ok &= products(ml_dtypes.float8_e4m3fn, 1, 300) == ([300] * 2 + [288] * 4, ["float32"] * 2 + ["float8_e4m3fn"] * 4)
ok &= products(ml_dtypes.bfloat16, 1, 1003) == ([1003] * 2 + [1004] * 4, ["float32"] * 2 + ["bfloat16"] * 4)
ok &= products(ml_dtypes.int4, 1, 20) == ([20] * 2 + [4] * 4, ["int8"] * 2 + ["int4"] * 4)
large, _ = products(ml_dtypes.float8_e4m3fn, 30, 1)
raise SystemExit(not (ok and large[:2] == [900, 900] and np.isnan(large[2:]).all()))
END
