#!/usr/bin/env bash
# In which type NumPy adds the 4-bit integers of ml_dtypes.
# guess: in 64 bits, as it adds int8: sixteen ones are 16, and the mean of four sevens is 7.0.
# seen:  with ml_dtypes 0.6.0 in four bits: sixteen ones are 0, ten ones -6. The mean is the wrapped sum, divided in four bits
#        too: of four sevens -1. The product of two such vectors by @ is in int8: 16 of sixteen ones, and 0 of 256.
. "$(dirname "$0")/common.sh"
with_packages ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import ml_dtypes
import numpy as np

def ones(n, kind=ml_dtypes.int4):
    return np.ones(n, kind)

sums = [int(ones(16).sum()), int(ones(10).sum()), int(ones(16, np.int8).sum()), int(ones(16).sum(dtype=np.int64))]
mean, usual = np.full(4, 7, ml_dtypes.int4).mean(), np.full(4, 7, np.int8).mean()
dots = [int(ones(n) @ ones(n)) for n in (16, 256)]
print(f"sums: 16 ones {sums[0]}, 10 ones {sums[1]}, 16 ones of int8 {sums[2]}, 16 ones with dtype=int64 {sums[3]}")
print(f"mean of four sevens: {mean} of type {mean.dtype}, of int8 {usual}; 16 and 256 ones by ones: {dots} of type {(ones(4) @ ones(4)).dtype}")
ok = sums == [0, -6, 16, 16] and int(mean) == -1 and usual == 7
raise SystemExit(not (ok and mean.dtype == ml_dtypes.int4 and dots == [16, 0]))
END
