#!/usr/bin/env bash
# What NumPy's mean that leaves NaN out, its mean with weights and its deviations are of a thousand times 300 in float16.
# guess: np.nanmean and np.average are 300: np.mean adds float16 in float32, as its documentation has it, so they do too.
# seen:  in NumPy 2.4.6 np.mean is 300. np.std and np.var take a mean added in float16, beyond 65504, and are infinite for equal
#        numbers, with a warning of an overflow. So is np.nanmean, without any NaN. np.average is 300 without weights and infinite
#        with weights of 1. All are right of a thousand times 30.
. "$(dirname "$0")/common.sh"
with_packages numpy==2.4.6 <<'END'
import numpy as np

names = {"mean": np.mean, "std": np.std, "var": np.var, "nanmean": np.nanmean, "nanstd": np.nanstd, "average": np.average,
         "average with weights": lambda x: np.average(x, weights=np.ones_like(x))}

def of(number, kind):
    x = np.full(1000, number, kind)
    with np.errstate(over="ignore"):
        found = {key: float(function(x)) for key, function in names.items()}
    print(f"1000 times {number} in {x.dtype}: {found}")
    return list(found.values())

inf = float("inf")
same = of(300, np.float16) == [300, inf, inf, inf, inf, 300, inf]
same &= of(300, np.float32) == [300, 0, 0, 300, 0, 300, 300]
same &= of(30, np.float16) == [30, 0, 0, 30, 0, 30, 30]
raise SystemExit(not same)
END
