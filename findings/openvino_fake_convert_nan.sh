#!/usr/bin/env bash
# FakeConvert of OpenVINO, which rounds to an 8-bit float and back, on a CPU.
# guess: to nearest even with one rounding; what is too large saturates, and NaN stays NaN.
# seen:  in openvino 2026.4.1 NaN becomes the most negative number, -448 in E4M3 and -57344 in E5M2, and numbers are rounded to float16
#        first: 0.09767745, just above the middle of 0.09375 and 0.1015625, becomes 0.09375. Saturation is as guessed.
. "$(dirname "$0")/common.sh"
with_packages openvino==2026.4.1 ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import ml_dtypes
import numpy as np
import openvino as ov
from openvino import opset13 as op

def rounded(values, to):
    x = op.parameter([len(values)], np.float32)
    y = op.fake_convert(x, np.float32(1), np.float32(0), to)
    model = ov.compile_model(ov.Model([y], [x], "fake"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return model(np.asarray(values, np.float32))[0].tolist()

values = [np.nan, 500.0, np.inf, 17.0, 0.09767745, -0.016604697]
e4m3, e5m2 = rounded(values, "f8e4m3"), rounded([np.nan, 1e6, 3.749758], "f8e5m2")
nearest = np.float32(values[4:]).astype(ml_dtypes.float8_e4m3fn).astype(np.float32).tolist()
print("f8e4m3 of", values, "is", e4m3)
print("f8e5m2 of", [np.nan, 1e6, 3.749758], "is", e5m2)
print("nearest in E4M3 to the last two:", nearest)
raise SystemExit(not (e4m3 == [-448, 448, 448, 16, 0.09375, -0.015625] and e5m2 == [-57344, 57344, 4] and nearest == [0.1015625, -0.017578125]))
END
