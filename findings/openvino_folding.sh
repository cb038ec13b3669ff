#!/usr/bin/env bash
# Whether OpenVINO computes the same of constants, which it folds when a model is compiled, and of inputs, on a CPU.
# guess: yes; 8-bit sums wrap around, as in ONNX and NumPy, and a Convert to int4 and back leaves a number of four bits.
# seen:  in openvino 2026.4.1 int8 100 + 100 is -56 of constants and 127 of inputs, 5 - 10 in uint8 251 and 0, 7 / 2 in int8 4 and 3. 9 through
#        int4 is -7 of a constant and 9 of an input, 100 is 4 and 100: int4 and uint4 hold eight bits there. 70000 through
#        float16 is infinity of a constant and 70000 of an input, 0.3 is 0.300049 and 0.3.
. "$(dirname "$0")/common.sh"
with_packages openvino==2026.4.1 numpy==2.4.6 <<'END'
import numpy as np
import openvino
from openvino import Type, opset13 as op

def both(name, make, *values):
    kinds = {np.dtype(np.int8): Type.i8, np.dtype(np.uint8): Type.u8, np.dtype(np.float32): Type.f32}
    parameters = [op.parameter(list(v.shape), kinds[v.dtype]) for v in values]
    models = openvino.Model([make(*map(op.constant, values))], [], "folded"), openvino.Model([make(*parameters)], parameters, "run")
    compiled = [openvino.Core().compile_model(m, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}) for m in models]
    found = compiled[0]([])[0].tolist(), compiled[1](list(values))[0].tolist()
    print(f"{name} of {', '.join(str(v.tolist()) for v in values)}: constants {found[0]}, inputs {found[1]}")
    return found

def through(kind):
    return lambda x: op.convert(op.convert(x, kind), Type.f32)

i8, u8, f32 = (lambda *v, kind=kind: np.array(v, kind) for kind in (np.int8, np.uint8, np.float32))
ok = both("int8 sum", op.add, i8(100, -100), i8(100, -100)) == ([-56, 56], [127, -128])
ok &= both("uint8 difference", op.subtract, u8(5, 200), u8(10, 100)) == ([251, 100], [0, 100])
ok &= both("int8 quotient", op.divide, i8(-7, 7), i8(2, 2)) == ([-4, 4], [-3, 3])
ok &= both("int4 and back", through(Type.i4), f32(7, 9, 100)) == ([7, -7, 4], [7, 9, 100])
ok &= both("uint4 and back", through(Type.u4), f32(15, 17, 100)) == ([15, 1, 4], [15, 17, 100])
folded, at_run = both("float16 and back", through(Type.f16), f32(70000, 0.3))
ok &= folded == [float("inf"), float(np.float16(0.3))] and at_run == [70000, float(np.float32(0.3))]
folded, at_run = both("int8 and back", through(Type.i8), f32(100, 300))
raise SystemExit(not (ok and folded == at_run == [100, 44]))
END
