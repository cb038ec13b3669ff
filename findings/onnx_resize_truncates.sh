#!/usr/bin/env bash
# How onnxruntime rounds a picture of uint8 that Resize interpolates linearly.
# guess: to the nearest: 10.25 becomes 10 and 10.75 becomes 11, so that a picture keeps its brightness.
# seen:  in onnxruntime 1.32.0 on a CPU it cuts off what is behind the point: 10.75 becomes 10, and a picture of noise comes out almost
#        half a step darker than in float32. With antialias = 1 it rounds, and so does the reference evaluator of the onnx package;
#        the operator's specification does not say.
. "$(dirname "$0")/common.sh"
with_packages onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 <<'END'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

def resized(x, factor, reference=False, **options):
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear", **options)], "resize",
        [helper.make_tensor_value_info("x", kind, x.shape)], [helper.make_tensor_value_info("y", kind, None)],
        [helper.make_tensor("scales", TensorProto.FLOAT, [4], [1, 1, factor, factor])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    if reference:
        return ReferenceEvaluator(model).run(None, {"x": x})[0]
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]

row = np.array([10, 11, 12, 13], np.uint8).reshape(1, 1, 1, 4).repeat(2, 2)
whole = resized(row.astype(np.float32), 2.0), resized(row, 2.0), resized(row, 2.0, reference=True)
exact, runtime, referred = (y[0, 0, 0] for y in whole)
print(f"10 11 12 13 enlarged: float32 {exact.tolist()}, uint8 {runtime.tolist()}, by the reference evaluator {referred.tolist()}")
noise = np.random.default_rng(0).integers(0, 256, (1, 3, 64, 64), np.uint8)
darker = {}
for name, factor, options in (("enlarged", 2.0, {}), ("made smaller", 0.7, {}), ("made smaller with antialias", 0.7, {"antialias": 1})):
    exactly, rounded = (resized(x, factor, **options).mean(dtype=np.float64) for x in (noise.astype(np.float32), noise))
    darker[name] = float(exactly - rounded)
print(f"uint8 is darker than float32 on average: { {name: round(d, 3) for name, d in darker.items()} }")
ok = runtime.tolist() == np.floor(exact).tolist() and referred.tolist() == np.rint(exact).tolist()
ok &= 0.35 < darker["enlarged"] < 0.55 and 0.35 < darker["made smaller"] < 0.55 and abs(darker["made smaller with antialias"]) < 0.1
raise SystemExit(not ok)
END
