#!/usr/bin/env bash
# What a Cast to 8-bit floats with saturate = 0 makes of numbers just beyond the largest one, in onnxruntime on a CPU.
# guess: numbers that would round beyond the largest finite value (448 of E4M3FN, 57344 of E5M2) become NaN where the format
#        has no infinity, and infinity where it has one, as in the specification's table and its reference evaluator.
# seen:  in E4M3FN 465 becomes NaN, 480 to just below 496 become 448 again, and 496 becomes NaN: the cast is not monotonic.
#        In E5M2 61440 up to 65535 become NaN, and 65536 infinity. QuantizeLinear with saturate = 0 does the same. The
#        reference evaluator of the onnx package does as guessed.
. "$(dirname "$0")/common.sh"
with_packages onnx==1.23.2 onnxruntime==1.32.0 ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

def two(values, kind, quantize=False):
    first = (helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["code"], saturate=0) if quantize
             else helper.make_node("Cast", ["x"], ["code"], to=kind, saturate=0))
    graph = helper.make_graph(
        [first, helper.make_node("Cast", ["code"], ["y"], to=TensorProto.FLOAT)], "cast",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [len(values)])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [len(values)])],
        [helper.make_tensor("scale", TensorProto.FLOAT, [], [1.0]), helper.make_tensor("zero", kind, [], [0.0])] if quantize else [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feed = {"x": np.array(values, np.float32)}
    run = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)[0]
    return np.asarray(run, np.float32), np.asarray(ReferenceEvaluator(model).run(None, feed)[0], np.float32)

def same(name, values, kind, runtime, reference, **options):
    run, referred = two(values, kind, **options)
    print(f"{name} of {values}: onnxruntime {run}, reference {referred}")
    return np.array_equal(run, runtime, equal_nan=True) and np.array_equal(referred, reference, equal_nan=True)

nan, inf = float("nan"), float("inf")
e4m3, e5m2 = [448, 464, 465, 480, 495, 496, 512], [57344, 61439, 61440, 65535, 65536]
back, none = [448, 448, nan, 448, 448, nan, nan], [448, 448] + [nan] * 5
ok = same("E4M3FN", e4m3, TensorProto.FLOAT8E4M3FN, back, none)
ok &= same("E5M2", e5m2, TensorProto.FLOAT8E5M2, [57344, 57344, nan, nan, inf], [57344, 57344, inf, inf, inf])
ok &= same("QuantizeLinear", e4m3, TensorProto.FLOAT8E4M3FN, back, none, quantize=True)
raise SystemExit(not ok)
END
