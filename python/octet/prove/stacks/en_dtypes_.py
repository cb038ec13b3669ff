"""en-dtypes: Ascend's types for NumPy, HiFloat8 among them."""

from __future__ import annotations

from functools import partial

from .. import cast

PACKAGES = ("en_dtypes",)
COVERS = "casts of float32, float16 to HiFloat8 and E8M0"
DEVICES = ("cpu",)

CASTS = {"hif8": "hifloat8", "e8m0": "float8_e8m0"}


def proofs(device):
    import en_dtypes
    for source in ("f32", "fp16"):
        for format, name in CASTS.items():
            what = f"en_dtypes {source} to {name}"
            yield what, partial(cast, lambda x, name=name: x.astype(getattr(en_dtypes, name)), format, source, what=what)
