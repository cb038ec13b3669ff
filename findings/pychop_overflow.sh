#!/usr/bin/env bash
# What pychop, which emulates short floats in NumPy, makes of numbers beyond the largest of a format.
# guess: infinity from half a step above the largest on, as in IEEE's formats: 65520 and 70000 in half precision, 248 and 300 with
#        four bits of exponent and three of mantissa.
# seen:  in pychop 0.6.2 with rounding to the nearest 65520 and 248 become 65536 and 256, which the formats do not have. From there
#        to twice as much numbers become 0: 70000 in half precision, 300 and -448 of (4, 3), 3.5e38 of (8, 7). Then, infinity.
. "$(dirname "$0")/common.sh"
with_packages pychop==0.6.2 numpy==2.4.6 <<'END'
import numpy as np
import pychop

pychop.backend("numpy")

def chopped(exponent, mantissa, numbers):
    y = pychop.Chop(exp_bits=exponent, sig_bits=mantissa, rmode=1)(np.array(numbers, float)).tolist()
    print(f"{exponent} bits of exponent, {mantissa} of mantissa: {numbers} become {y}")
    return y

inf = float("inf")
ok = chopped(5, 10, [65504, 65520, 70000, 131071, 131072]) == [65504, 65536, 0, 0, inf]
ok &= chopped(4, 3, [240, 248, 300, -448, 511, 512]) == [240, 256, 0, 0, 0, inf]
ok &= chopped(5, 2, [57344, 61440, 70000, 131072]) == [57344, 65536, 0, inf]
ok &= chopped(8, 7, [3e38, 3.5e38, 7e38])[1:] == [0, inf]
raise SystemExit(not ok)
END
