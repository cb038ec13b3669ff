#!/usr/bin/env bash
# Which numbers jax.lax.reduce_precision keeps, by which shorter floats are emulated.
# guess: those of the IEEE format with as many bits: (5, 10) is what a cast to float16 and back gives, (4, 3) has 2^-7 and 2^-9.
# seen:  in jax 0.10.2 on a CPU it has no subnormals: what is below the smallest normal number and does not round up to it becomes 0,
#        with (5, 10) below 2^-14, where float16 keeps ten more powers of two, with (4, 3) below 2^-6. (8, 7) keeps float32's.
. "$(dirname "$0")/common.sh"
with_packages jax==0.10.2 jaxlib==0.10.2 ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import jax
import ml_dtypes
import numpy as np

def both(powers, exponent, mantissa, kind):
    x = np.array([2.0**p for p in powers], np.float32)
    reduced = np.asarray(jax.lax.reduce_precision(x, exponent, mantissa))
    cast = x.astype(kind).astype(np.float32)
    names = [[None if y == 0 else int(np.log2(y)) for y in ys] for ys in (reduced, cast)]
    print(f"powers {powers}: reduce_precision({exponent}, {mantissa}) {names[0]}, {np.dtype(kind).name} {names[1]}; None is 0")
    return reduced.tolist() == cast.tolist(), int((reduced == 0).sum())

ok = both([-13, -14, -15, -18, -24], 5, 10, np.float16) == (False, 3)
ok &= both([-5, -6, -7, -8, -9], 4, 3, ml_dtypes.float8_e4m3) == (False, 3)
ok &= both([-125, -126, -127, -130, -133], 8, 7, ml_dtypes.bfloat16) == (True, 0)
weights = np.random.default_rng(0).normal(0, 2**-6, 10000).astype(np.float32)
share = float((np.asarray(jax.lax.reduce_precision(weights, 4, 3)) == 0).mean())
kept = float((weights.astype(ml_dtypes.float8_e4m3) == 0).mean())
print(f"of normal weights with the deviation 2^-6 {share:.2f} become 0 with (4, 3), {kept:.2f} in float8_e4m3")
raise SystemExit(not (ok and share > 0.6 and kept < 0.06))
END
