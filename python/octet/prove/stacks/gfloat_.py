"""gfloat: formats and roundings in Python, which standards' groups use as a reference."""

from __future__ import annotations

from functools import partial

import numpy as np

from .. import cast

PACKAGES = ("gfloat",)
COVERS = "round_ndarray of float32 to OCP E4M3 and E5M2, saturating and not, bfloat16 and float16"
DEVICES = ("cpu",)

CASTS = {"e4m3": "format_info_ocp_e4m3", "e5m2": "format_info_ocp_e5m2", "bf16": "format_info_bfloat16", "fp16": "format_info_binary16"}


def proofs(device):
    import gfloat
    from gfloat import formats
    for format, name in CASTS.items():
        for saturates in (False, True) if format in ("e4m3", "e5m2") else (False,):
            def f(x, info=getattr(formats, name), saturates=saturates):
                return gfloat.round_ndarray(info, x.astype(np.float64), sat=saturates)
            what = f"gfloat f32 to {format}" + (" saturating" if saturates else "")
            yield what, partial(cast, f, format, overflow="saturate" if saturates else None, what=what)
