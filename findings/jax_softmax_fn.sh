#!/usr/bin/env bash
# What jax.nn.softmax of four zeros is in the 8-bit floats.
# guess: 0.25 four times, which each of them holds.
# seen:  in jax 0.10.2 NaN four times in the types without infinity, E4M3FN, E4M3FNUZ and E5M2FNUZ, from log_softmax too: their
#        largest logit is looked for from -infinity, which is NaN there. In E5M2 and in E4M3 with infinity (IEEE's) it is 0.25,
#        and logsumexp is a number in all of them.
. "$(dirname "$0")/common.sh"
with_packages jax==0.10.2 jaxlib==0.10.2 ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import jax
import jax.numpy as jnp
import numpy as np

def first(f, kind):
    return float(np.asarray(f(jnp.zeros(4, kind)), np.float32).ravel()[0])

ok = True
for kind in ("float8_e5m2", "float8_e4m3", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz"):
    soft, log, total = (first(f, getattr(jnp, kind)) for f in (jax.nn.softmax, jax.nn.log_softmax, jax.nn.logsumexp))
    largest = first(lambda x: jnp.max(x, initial=-jnp.inf), getattr(jnp, kind))
    print(f"{kind}: softmax of four zeros {soft}, log_softmax {log}, logsumexp {total}, max from -inf {largest}")
    ok &= abs(total - 1.386) < 0.12
    ok &= np.isnan([soft, log, largest]).all() if kind[-2:] in ("fn", "uz") else (soft == 0.25 and largest == 0)
raise SystemExit(not ok)
END
