#!/usr/bin/env bash
# Which type codes times scales have in NumPy with the types of ml_dtypes, where a group of MX or NVFP4 is dequantized.
# guess: one that holds both, float32 at the latest: 6 in FP4 times 448 in E4M3 is 2688, -3 in int8 times 2 in E8M0 is -6.
# seen:  with ml_dtypes 0.6.0 it is an operand's own type. FP4 times E4M3 is FP4 with the codes first: 6 times 448 is 6. With the
#        scales first it is E4M3: NaN. int8 times E8M0 is E8M0, without a sign or a mantissa: -3 times 2 is NaN, 3 times 2 is 8.
#        int8 times E4M3 is E4M3: 17 times 1 is 16. can_cast calls int8 and uint8 to these types safe. int4 times E8M0 is float32.
. "$(dirname "$0")/common.sh"
with_packages ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import warnings

import ml_dtypes
import numpy as np
from ml_dtypes import float4_e2m1fn as fp4, float8_e4m3fn as e4m3, float8_e8m0fnu as e8m0, int4

warnings.simplefilter("ignore")

def times(codes, kind, scale, of):
    codes, scale = np.array(codes, kind), np.array([scale], of)
    found = []
    for y in (codes * scale, scale * codes):
        found += [y.astype(np.float32).tolist(), y.dtype.name]
    print(f"{codes} {codes.dtype.name} times {scale[0]} {scale.dtype.name}: {found[0]} {found[1]}; scale first: {found[2]} {found[3]}")
    return found

nan = float("nan")

def same(found, expected):
    return found[1::2] == expected[1::2] and all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found[::2], expected[::2]))

ok = same(times([6, -3, 1], fp4, 448, e4m3), [[6, -6, 6], "float4_e2m1fn", [nan, nan, 448], "float8_e4m3fn"])
ok &= same(times([-3, 3, 7], np.int8, 2, e8m0), [[nan, 8, 16], "float8_e8m0fnu"] * 2)
ok &= same(times([17, 127, -100], np.int8, 1, e4m3), [[16, 128, -96], "float8_e4m3fn"] * 2)
ok &= same(times([-3, 3, 7], int4, 2, e8m0), [[-6, 6, 14], "float32"] * 2)
safe = [np.can_cast(a, b, "safe") for a, b in ((np.int8, e4m3), (np.uint8, e8m0), (np.int8, fp4), (np.int16, e4m3))]
print(f"can_cast int8 to E4M3FN, uint8 to E8M0, int8 to FP4, int16 to E4M3FN: {safe}")
raise SystemExit(not (ok and safe == [True, True, True, False]))
END
