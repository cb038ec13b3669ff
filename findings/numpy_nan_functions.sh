#!/usr/bin/env bash
# Which of NumPy's functions that leave NaN out do so with the bfloat16 and the 8-bit floats of ml_dtypes.
# guess: all of them, as with NumPy's own floats: of 1, NaN and 3 the sum is 4, the mean 2, and the largest is 3 at index 2.
# seen:  in NumPy 2.4.6 nanmax, nanmin and nanmedian do. nansum, nanmean, nanstd, nanprod and nancumsum give NaN, without a warning,
#        and nanargmax gives 1, the NaN's index. float16 does as guessed.
. "$(dirname "$0")/common.sh"
with_packages ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import warnings

import ml_dtypes
import numpy as np

warnings.simplefilter("error")
names = ("nanmax", "nanmin", "nanmedian", "nansum", "nanmean", "nanstd", "nanprod", "nanargmax")

def of(kind):
    x = np.array([1, np.nan, 3], np.float32).astype(kind)
    found, sums = [float(getattr(np, name)(x)) for name in names], np.nancumsum(x).astype(float).tolist()
    print(f"{np.dtype(kind).name} 1 nan 3: {dict(zip(names, found))}, nancumsum {sums}")
    return found + sums

nan = float("nan")
same = of(np.float16) == [3, 1, 2, 4, 2, 1, 3, 2, 1, 1, 4]
for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
    same &= np.array_equal(of(kind), [3, 1, 2, nan, nan, nan, nan, 1, 1, nan, nan], equal_nan=True)
raise SystemExit(not same)
END
