#!/usr/bin/env bash
# How OpenVINO rounds float32 constants to bfloat16.
# guess: to the nearest, ties to even: 1.0078 becomes 1.0078125, and no number is off by more than 2^-8 of itself.
# seen:  in openvino 2026.4.1 numbers whose first 16 bits are even are cut: 1.0078 becomes 1, 70000 becomes 69632. Those with odd
#        ones are rounded. A quarter of all numbers is not the nearest one, and off by up to 2^-7. It is so by op.constant(x, bf16)
#        and where a Convert of a constant is folded; a Convert of an input is right.
. "$(dirname "$0")/common.sh"
with_packages openvino==2026.4.1 ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import ml_dtypes
import numpy as np
import openvino
from openvino import Type, opset13 as op

def run(result, inputs=(), values=()):
    model = openvino.Model([result], list(inputs), "model")
    return openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(list(values))[0]

def converted(x):
    parameter = op.parameter(list(x.shape), Type.f32)
    made = op.constant(x, Type.bf16).get_data(dtype=np.float32)
    folded = run(op.convert(op.convert(op.constant(x), Type.bf16), Type.f32))
    at_run = run(op.convert(op.convert(parameter, Type.bf16), Type.f32), [parameter], [x])
    return made, folded, at_run, x.astype(ml_dtypes.bfloat16).astype(np.float32)

few = [y.tolist() for y in converted(np.array([1.0078, 1.0117, 70000], np.float32))]
print(f"1.0078, 1.0117 and 70000 as a constant {few[0]}, folded {few[1]}, from an input {few[2]}, nearest {few[3]}")
x = np.random.default_rng(0).normal(size=100000).astype(np.float32)
made, folded, at_run, nearest = converted(x)
shares = [float((y != nearest).mean()) for y in (made, folded, at_run)]
worst = [float(abs(y / x - 1).max()) for y in (made, nearest)]
print(f"of 100000 normal numbers not the nearest: constant {shares[0]:.3f}, folded {shares[1]:.3f}, input {shares[2]:.3f}; "
      f"largest relative error {worst[0]:.5f}, nearest {worst[1]:.5f}")
ok = few[0] == few[1] == [1, 1.0078125, 69632] and few[2] == few[3] == [1.0078125, 1.0078125, 70144]
raise SystemExit(not (ok and 0.24 < shares[0] < 0.26 and shares[0] == shares[1] and shares[2] == 0 and worst[0] > 0.0075))
END
