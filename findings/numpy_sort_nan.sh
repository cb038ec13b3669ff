#!/usr/bin/env bash
# What a NaN does to NumPy's order of the 8-bit floats and the bfloat16 of ml_dtypes.
# guess: as with NumPy's own floats: np.sort puts NaN behind all numbers, np.unique keeps one NaN.
# seen:  np.sort leaves [3, nan, 1] as it is, as if a NaN were equal to all numbers and none had to pass it. The median of
#        1 2 3 4 nan is 3, without a warning. np.unique keeps each NaN and repeats numbers around them; of float8_e5m2 it
#        loses the 1 of [2, nan, 1, 2, nan]. float16 does as guessed.
. "$(dirname "$0")/common.sh"
with_packages ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import ml_dtypes
import numpy as np

nan = float("nan")

def of(kind):
    def array(*values):
        return np.array(values, np.float32).astype(kind)

    sorted_ = np.sort(array(3, nan, 1)).astype(float)
    unique = np.unique(array(2, nan, 1, 2, nan)).astype(float)
    median = float(np.median(array(1, 2, 3, 4, nan)))
    print(f"{np.dtype(kind).name}: sorted {sorted_}, unique {unique}, median {median}")
    return [*sorted_], [*unique], median

def as_written(seen, *values):
    return all(np.array_equal(one, other, equal_nan=True) for one, other in zip(seen, values, strict=True))

as_it_is, repeated = [3, nan, 1], [2, nan, 1, 2, nan]
same = as_written(of(np.float16), [1, 3, nan], [1, 2, nan], nan)
for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
    same &= as_written(of(kind), as_it_is, repeated, 3)
same &= as_written(of(ml_dtypes.float8_e5m2), as_it_is, [2], 3)
raise SystemExit(not same)
END
