"""JAX: compiled conversions (XLA) on the CPU. Nothing saturates, as of ml_dtypes."""

from __future__ import annotations

from functools import partial

import numpy as np

from .. import cast

PACKAGES = ("jax", "ml_dtypes")
COVERS = "jit(astype) from f32, bf16 and fp16 to E4M3, E5M2, E8M0, bfloat16, float16"
DEVICES = ("cpu",)

TYPES = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e8m0": "float8_e8m0fnu", "bf16": "bfloat16", "fp16": "float16"}


def proofs(device: str):
    import jax
    import jax.numpy as jnp
    cpu = jax.devices("cpu")[0]

    def convert(name):
        compiled = jax.jit(lambda x: x.astype(getattr(jnp, name)))
        return lambda x: np.asarray(compiled(jax.device_put(np.ascontiguousarray(x), cpu)))
    for format, name in TYPES.items():
        for source in ("f32", "bf16", "fp16"):
            if source != format:
                what = f"jax {source} to {name}"
                # Each length would be compiled by itself: the whole array alone.
                yield what, partial(cast, convert(name), format, source, layouts=False, what=what)
