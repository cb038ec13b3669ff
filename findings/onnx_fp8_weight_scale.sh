#!/usr/bin/env bash
# Which scale onnxruntime's quantize_static gives weights in E4M3 (QFLOAT8E4M3FN).
# guess: amax / 448, as its int8 weights get amax / 127: the largest weight comes back, and weights that are all 0.5 are kept.
# seen:  in onnxruntime 1.32.0 the standard deviation of the weights over that of all E4M3 numbers. Of normal weights 448 codes 4.9 deviations, and a
#        weight of 20 comes back as 4.9. Weights that are all 0.5 have no deviation: their scale is 0, and the product with
#        them is 0 instead of -2.3. With QInt8 both are as guessed.
. "$(dirname "$0")/common.sh"
with_packages onnx==1.23.2 onnxruntime==1.32.0 ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import contextlib
import io
import logging

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static

logging.disable(logging.WARNING)

class Rows(CalibrationDataReader):
    def __init__(self, x):
        self.rows = iter([{"x": x}])

    def get_next(self):
        return next(self.rows, None)

def quantized(name, weights, kind):
    x = np.random.default_rng(1).normal(0, 1, (2, len(weights))).astype(np.float32)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], "graph",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, weights.shape[1]])], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), "model.onnx")
    with contextlib.redirect_stdout(io.StringIO()):
        quantize_static("model.onnx", "quantized.onnx", Rows(x), quant_format=QuantFormat.QDQ, activation_type=kind, weight_type=kind,
                        calibrate_method=CalibrationMethod.Distribution if kind == QuantType.QFLOAT8E4M3FN else CalibrationMethod.MinMax)
    parts = {t.name: numpy_helper.to_array(t).astype(np.float32) for t in onnx.load("quantized.onnx").graph.initializer}
    scale, first = float(parts["w_scale"]), float(parts["w_quantized"][0, 0] * parts["w_scale"])
    y = float(onnxruntime.InferenceSession("quantized.onnx", providers=["CPUExecutionProvider"]).run(None, {"x": x})[0][0, 0])
    exact = float((x @ weights)[0, 0])
    print(f"{name}, {kind}: deviation {weights.std():.4g}, amax {abs(weights).max():.4g}, scale {scale:.4g}; "
          f"first weight {weights[0, 0]} becomes {first:.4g}, first output {y:.4g}, exact {exact:.4g}")
    return scale, first, y, exact

normal = np.random.default_rng(0).normal(0, 1, (64, 32)).astype(np.float32)
normal[0, 0] = 20
halves = np.full((64, 32), 0.5, np.float32)
scale, first, _, _ = quantized("normal weights and one of 20", normal, QuantType.QFLOAT8E4M3FN)
ok = 0.0105 < scale < 0.0115 and abs(first - 448 * scale) < 1e-4
scale, _, y, exact = quantized("all 0.5", halves, QuantType.QFLOAT8E4M3FN)
ok &= scale == 0 and y == 0 and abs(exact) > 0.1
ok &= abs(quantized("normal weights and one of 20", normal, QuantType.QInt8)[1] - 20) < 0.01
_, _, y, exact = quantized("all 0.5", halves, QuantType.QInt8)
raise SystemExit(not (ok and abs(y - exact) < 0.05 * abs(exact)))
END
