"""ml_dtypes: NumPy's types of 8 and 16 bits, which JAX and TensorFlow use."""

from __future__ import annotations

from functools import partial

from .. import cast

PACKAGES = ("ml_dtypes",)
COVERS = "casts of float32, bfloat16, float16 to 8 and 16 bits"
DEVICES = ("cpu",)

CASTS = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e8m0": "float8_e8m0fnu", "bf16": "bfloat16"}


def proofs(device):
    import ml_dtypes
    for source in ("f32", "bf16", "fp16"):
        for format, name in CASTS.items():
            if source != format:
                what = f"ml_dtypes {source} to {name}"
                yield what, partial(cast, lambda x, name=name: x.astype(getattr(ml_dtypes, name)), format, source, what=what)
