"""onnxruntime: the operator Cast, saturating and not."""

from __future__ import annotations

from functools import partial

import numpy as np

from .. import cast

PACKAGES = ("onnxruntime", "onnx")
COVERS = "Cast of float32 and float16 to FLOAT8E4M3FN and FLOAT8E5M2"
DEVICES = ("cpu",)

CASTS = {"e4m3": "FLOAT8E4M3FN", "e5m2": "FLOAT8E5M2"}
SOURCES = {"f32": "FLOAT", "fp16": "FLOAT16"}


def proofs(device):
    for source in SOURCES:
        for format in CASTS:
            for saturates in (True, False):
                overflow = "saturate" if saturates else {"e4m3": "nan", "e5m2": "inf"}[format]
                what = f"onnxruntime {source} to {CASTS[format]} saturate={int(saturates)}"
                yield what, partial(cast, _Cast(source, format, saturates), format, source, overflow=overflow, what=what)


class _Cast:
    """A model of two casts, whose session is made once: to 8 bits and back to float32, which is exact."""

    def __init__(self, source, format, saturates):
        import onnxruntime
        from onnx import TensorProto, helper
        first = helper.make_node("Cast", ["x"], ["code"], to=getattr(TensorProto, CASTS[format]), saturate=int(saturates))
        graph = helper.make_graph([first, helper.make_node("Cast", ["code"], ["y"], to=TensorProto.FLOAT)], "cast",
                                  [helper.make_tensor_value_info("x", getattr(TensorProto, SOURCES[source]), ["n"])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        self._session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])

    def __call__(self, x):
        return np.asarray(self._session.run(None, {"x": np.ascontiguousarray(x)})[0], np.float32)
