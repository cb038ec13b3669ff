#!/usr/bin/env bash
# In which precision jax.numpy.sum adds 8-bit floats.
# guess: in float32, with one rounding at the end, as it adds bfloat16 and as a product of 8-bit matrices adds: a hundred
#        ones are 96 in E4M3FN, the number next to 100.
# seen:  each partial sum is rounded to E4M3FN, and a hundred ones are 64 on a CPU. Of 256 and 64 ones, 320 in E4M3FN too,
#        the sum is 256, and 288 with the 256 behind the ones; jnp.mean is as far off. jnp.dot with ones is 320, as is the
#        sum with dtype=float32. The traced program converts bfloat16 to float32 before the sum, and E4M3FN not.
. "$(dirname "$0")/common.sh"
with_packages jax==0.10.2 jaxlib==0.10.2 ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import jax
import jax.numpy as jnp

def converts(kind):
    equations = jax.make_jaxpr(jnp.sum)(jnp.ones(4, kind)).eqns
    return any(equation.primitive.name == "convert_element_type" for equation in equations)

numbers = jnp.array([256] + [1] * 64, jnp.float8_e4m3fn)
own, turned, mean = (float(x) for x in (jnp.sum(numbers), jnp.sum(numbers[::-1]), jnp.mean(numbers)))
dot = float(jnp.dot(numbers, jnp.ones_like(numbers)))
wide, other = float(jnp.sum(numbers, dtype=jnp.float32)), float(jnp.sum(numbers.astype(jnp.bfloat16)))
print(f"256 and 64 ones: sum {own}, in the other order {turned}, mean {mean}; dot {dot}; in float32 {wide}, in bfloat16 {other}")
print("converted before the sum: bfloat16", converts(jnp.bfloat16), "float8_e4m3fn", converts(jnp.float8_e4m3fn))
ok = dot == wide == other == 320 and converts(jnp.bfloat16) and not converts(jnp.float8_e4m3fn)
raise SystemExit(not (ok and own < 320 and turned < 320 and mean < 4.5))
END
