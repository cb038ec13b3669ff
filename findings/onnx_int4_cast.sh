#!/usr/bin/env bash
# How onnxruntime casts floats to 4-bit integers on a CPU.
# guess: as to all other integers, toward zero: 1.6 becomes 1, -0.5 becomes 0, 7.9 becomes 7.
# seen:  in onnxruntime 1.32.0 INT4 and UINT4 are rounded to the nearest, ties away from zero: 1.6 becomes 2, 2.5 becomes 3, -0.5
#        becomes -1, and 7.5 and 7.9 become 8, which is -8 in INT4. INT8 to INT64 are cut toward zero, and the reference
#        evaluator of the onnx package cuts INT4 too.
. "$(dirname "$0")/common.sh"
with_packages onnx==1.23.2 onnxruntime==1.32.0 ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import numpy as np
import onnxruntime
from onnx import TensorProto, checker, helper
from onnx.reference import ReferenceEvaluator

def cast(numbers, name):
    x = np.array(numbers, np.float32)
    casts = [helper.make_node("Cast", [a], [b], to=kind) for a, b, kind in (("x", "codes", getattr(TensorProto, name)), ("codes", "y", TensorProto.FLOAT))]
    graph = helper.make_graph(casts, "graph", *([helper.make_tensor_value_info(end, TensorProto.FLOAT, x.shape)] for end in "xy"))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    own, reference = (np.asarray(run(None, {"x": x})[0]).tolist() for run in (session.run, ReferenceEvaluator(model).run))
    print(f"{numbers} to {name}: onnxruntime {own}, reference {reference}")
    return own, reference

signed, unsigned = [1.4, 1.6, 2.5, -0.5, -1.6, 7.4, 7.5, 7.9], [0.5, 1.6, 2.5, 7.9]
cut = [1, 1, 2, 0, -1, 7, 7, 7]
ok = cast(signed, "INT4") == ([1, 2, 3, -1, -2, 7, -8, -8], cut)
ok &= cast(unsigned, "UINT4") == ([1, 2, 3, 8], [0, 1, 2, 7])
for name in ("INT8", "INT16", "INT32", "INT64"):
    ok &= cast(signed, name) == (cut, cut)
raise SystemExit(not ok)
END
