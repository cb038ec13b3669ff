#!/usr/bin/env bash
# The norm of a tree of bfloat16 gradients, and what clipping by it leaves.
# guess: leaves are added in float32: the norm of 1000 leaves of one 1 is 31.6, and clipped to 1 they have the norm 1.
# seen:  in optax 0.2.8 the sum over leaves is a bfloat16 too and stops at 256: the norm is 16, and clipped to 1 they have 1.98. The
#        same 1000 ones in one leaf give 31.6. In float16 the norm of four 300s is infinite.
. "$(dirname "$0")/common.sh"
with_packages optax==0.2.8 jax==0.10.2 numpy==2.4.6 <<'END'
import jax
import jax.numpy as jnp
import numpy as np
import optax

def clipped(tree):
    out, _ = optax.clip_by_global_norm(1.0).update(tree, optax.EmptyState())
    return float(np.sqrt(sum((np.asarray(x, np.float64) ** 2).sum() for x in jax.tree.leaves(out))))

many = [jnp.ones(1, jnp.bfloat16)] * 1000
whole = [jnp.ones(1000, jnp.bfloat16)]
seen = {}
for name, tree in (("1000 leaves", many), ("one leaf", whole), ("1000 leaves in float32", [x.astype(jnp.float32) for x in many])):
    seen[name] = float(optax.global_norm(tree)), round(clipped(tree), 2)
    print(f"{name} of ones: norm {seen[name][0]}, after clip_by_global_norm(1) {seen[name][1]}")
half = float(optax.global_norm([jnp.full(4, 300, jnp.float16)]))
print("norm of four 300s in float16:", half)
raise SystemExit(not (seen["1000 leaves"] == (16, 1.98) and seen["one leaf"][1] == seen["1000 leaves in float32"][1] == 1
                      and abs(seen["one leaf"][0] - 31.6) < 0.1 and half == np.inf))
END
