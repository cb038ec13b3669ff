#!/usr/bin/env bash
# What jax.random draws where the type is bfloat16 or an 8-bit float.
# guess: a probability of 0.001 holds in one draw of a thousand in bfloat16 too, and each of 1000 equal bfloat16 logits is drawn
#        about as often as the others, since both are compared in float32.
# seen:  in jax 0.10.2 everything comes from uniform numbers of as many bits as the type's mantissa has. Normals in bfloat16
#        are 128 numbers from -2.9 to 2.5, in E4M3FN 8 numbers from -1.9 to 1.25. bernoulli with the bfloat16 0.001 is true eight
#        times in a thousand. Of 1000 equal bfloat16 logits 98 of a hundred draws of categorical are among the first 500.
. "$(dirname "$0")/common.sh"
with_packages jax==0.10.2 jaxlib==0.10.2 ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import jax
import jax.numpy as jnp
import numpy as np

key = jax.random.key(0)

def normals(kind):
    drawn = np.asarray(jax.random.normal(key, (1000000,), kind)).astype(np.float32)
    print(f"normal, {np.dtype(kind).name}: {len(np.unique(drawn))} numbers from {drawn.min():.4g} to {drawn.max():.4g}")
    return len(np.unique(drawn)), max(-drawn.min(), drawn.max())

def share(kind):
    drawn = float(jax.random.bernoulli(key, jnp.array(0.001, kind), (1000000,)).mean())
    print(f"bernoulli of 0.001, {np.dtype(kind).name}: {drawn:.4f}")
    return drawn

def first_half(kind):
    drawn = np.asarray(jax.random.categorical(key, jnp.zeros(1000, kind), shape=(50000,)))
    print(f"categorical of 1000 equal logits, {np.dtype(kind).name}: {np.mean(drawn < 500):.2f} of the draws are below 500")
    return np.mean(drawn < 500)

wide, short, tiny = normals(jnp.float32), normals(jnp.bfloat16), normals(jnp.float8_e4m3fn)
ok = wide[1] > 4.5 and short[0] == 128 and short[1] < 3 and tiny[0] == 8 and tiny[1] < 2
ok &= share(jnp.float32) < 0.0012 and share(jnp.bfloat16) > 0.005
raise SystemExit(not (ok and first_half(jnp.float32) < 0.51 and first_half(jnp.bfloat16) > 0.95))
END
