#!/usr/bin/env bash
# How numbers between two powers of two become Ascend's float8_e8m0 in NumPy.
# guess: the nearest power, as the package's hifloat8 takes the nearest number, and as ml_dtypes does: 1.75 and 1.99 become 2.
# seen:  en-dtypes 0.0.4 takes the power below: 1.75 and 1.99 become 1, 3.9 becomes 2. Half of the smallest power becomes NaN,
#        and the largest float32 becomes 2^127 where ml_dtypes gives NaN.
. "$(dirname "$0")/common.sh"
with_packages en-dtypes==0.0.4 ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import en_dtypes
import ml_dtypes
import numpy as np

x = np.array([1.0, 1.25, 1.75, 1.99, 3.9, 2.0**-128, np.finfo(np.float32).max], np.float32)
with np.errstate(all="ignore"):
    ascend = x.astype(en_dtypes.float8_e8m0).view(np.uint8).tolist()
    other = x.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8).tolist()
    nearest = np.array([1.99, 3.9], np.float32).astype(en_dtypes.hifloat8).astype(np.float32).tolist()
print("codes of", x.tolist(), "in en_dtypes:", ascend, "in ml_dtypes:", other)
print("1.99 and 3.9 in hifloat8:", nearest)
raise SystemExit(not (ascend == [127, 127, 127, 127, 128, 255, 254] and other == [127, 127, 128, 128, 129, 0, 255] and nearest == [2.0, 4.0]))
END
