#!/usr/bin/env bash
# What a NaN does to ReduceMax, ReduceMin and ArgMax in onnxruntime on a CPU.
# guess: the result is NaN wherever it stands, as of Max in the same package, and ArgMax gives its place, as in NumPy.
# seen:  in onnxruntime 1.32.0 a NaN counts only as the first of the numbers that are reduced: [nan, 1, 3] has the maximum NaN,
#        [1, nan, 3] and [1, 3, nan] have 3, of a thousand numbers too, and ArgMax gives the place of 3. Max of two tensors
#        gives NaN from either. DynamicQuantizeLinear passes over it: [1, nan, 2] has the scale of 0 to 2. The reference
#        evaluator of the onnx package does as guessed; there that scale is NaN.
. "$(dirname "$0")/common.sh"
with_packages onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 <<'END'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

nan = float("nan")

def two(op, arrays, results=(TensorProto.FLOAT,), **attributes):
    names, outputs = [f"x{i}" for i in range(len(arrays))], [f"y{i}" for i in range(len(results))]
    graph = helper.make_graph([helper.make_node(op, names, outputs, **attributes)], "graph",
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in zip(names, arrays)],
                              [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(outputs, results)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    feed = dict(zip(names, arrays))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [[np.asarray(y).tolist() for y in run(None, feed)] for run in (session.run, ReferenceEvaluator(model).run)]

def same(one, other):
    return np.array_equal(one, other, equal_nan=True)

seen = []
for numbers in ([nan, 1, 3], [1, nan, 3], [1, 3, nan]):
    x = np.array(numbers, np.float32)
    top, low = two("ReduceMax", [x], keepdims=0), two("ReduceMin", [x], keepdims=0)
    place = two("ArgMax", [x], [TensorProto.INT64], keepdims=0, axis=0)
    print(f"{numbers}, onnxruntime and reference: ReduceMax {top}, ReduceMin {low}, ArgMax {place}")
    seen.append([v[0] for pair in (top, low, place) for v in pair])
ok = same(seen, [[nan, nan, nan, nan, 0, 0], [3, nan, 1, nan, 2, 1], [3, nan, 1, nan, 1, 2]])
long = np.arange(1000, dtype=np.float32)
long[500] = nan
ok &= same([v[0] for v in two("ReduceMax", [long], keepdims=0)], [999, nan])
pair = [v[0] for v in two("Max", [np.array([1, nan], np.float32), np.array([nan, 1], np.float32)])]
ok &= bool(np.isnan(pair).all())
own, reference = two("DynamicQuantizeLinear", [np.array([1, nan, 2], np.float32)], [TensorProto.UINT8, TensorProto.FLOAT, TensorProto.UINT8])
print(f"Max of [1, nan] and [nan, 1]: {pair}; codes, scale and zero point of [1, nan, 2]: {own}, in the reference {reference}")
raise SystemExit(not (ok and own[0][::2] == [127, 255] and abs(own[1] - 2 / 255) < 1e-6 and np.isnan(reference[1])))
END
