#!/usr/bin/env bash
# In which precision the reference evaluator of ONNX computes LayerNormalization and RMSNormalization of short floats.
# guess: in float32: the default of stash_type is 1, which "also specifies stage one's computation precision".
# seen:  in onnx 1.23.2 in the input's own type. The square of 256 is infinite in float16: RMSNormalization of 1000, -1000, 500, 600
#        is four zeros, and LayerNormalization of 200, -200, 100, 120 too; onnxruntime gives 1.24, -1.24 and so on. In bfloat16
#        the mean square of 4096 ones is 1/16, since their sum stays at 256, and each of them becomes 4.
. "$(dirname "$0")/common.sh"
with_packages onnx==1.23.2 onnxruntime==1.32.0 ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import ml_dtypes
import numpy as np
import onnxruntime
from onnx import TensorProto, checker, helper
from onnx.reference import ReferenceEvaluator

def normalized(op, row, kind):
    x = np.array([row], {TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16}[kind])
    shape, n = x.shape, len(row)
    graph = helper.make_graph([helper.make_node(op, ["x", "scale"], ["y"], stash_type=1)], "graph",
                              [helper.make_tensor_value_info("x", kind, shape)], [helper.make_tensor_value_info("y", kind, shape)],
                              [helper.make_tensor("scale", kind, [n], [1.0] * n)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    checker.check_model(model, full_check=True)
    runs = [ReferenceEvaluator(model).run]
    if kind == TensorProto.FLOAT16:
        runs.append(onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run)
    got = [np.asarray(run(None, {"x": x})[0], np.float32)[0, :4].tolist() for run in runs]
    print(f"{op} of {row[:4]}{' ...' if n > 4 else ''} in {x.dtype.name}: reference {got[0]}, onnxruntime {got[1:]}")
    return got

small = normalized("RMSNormalization", [100, -100, 50, 60], TensorProto.FLOAT16)
ok = np.allclose(small[0], small[1], atol=2e-3)
for op, row in (("RMSNormalization", [1000, -1000, 500, 600]), ("LayerNormalization", [200, -200, 100, 120])):
    reference, own = normalized(op, row, TensorProto.FLOAT16)
    ok &= not np.any(reference) and max(own) > 0.9 and min(own) < -1.2
ones = normalized("RMSNormalization", [1] * 4096, TensorProto.BFLOAT16)[0]
raise SystemExit(not (ok and ones == [4] * 4))
END
