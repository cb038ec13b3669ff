#!/usr/bin/env bash
# Which numbers a group from -1 to 1 has in mlx's affine quantization, the default of its quantized models.
# guess: 2^bits numbers evenly from the smallest weight to the largest, as its documentation has it, so that no weight is off by
#        more than half a step: in two bits -1, -1/3, 1/3 and 1.
# seen:  in mlx 0.32.4 the end of larger magnitude and 0 are kept, and the step becomes one that makes 0 a code: in two bits 1,
#        0.5, 0 and -0.5. The other end is cut off where that step is smaller: -1 becomes -0.5, and -0.9375 in five bits. In 3,
#        4, 6 and 8 bits it is larger.
. "$(dirname "$0")/common.sh"
with_packages "mlx[cpu]==0.32.4" numpy==2.4.6 <<'END'
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)

def ends(bits):
    weights = np.linspace(-1, 1, 32, dtype=np.float32)[None]
    codes, scales, biases = mx.quantize(mx.array(weights), group_size=32, bits=bits)
    y = np.array(mx.dequantize(codes, scales, biases, group_size=32, bits=bits))
    worst, step = float(abs(y - weights).max()), 2 / (2**bits - 1)
    print(f"{bits} bits: scale {float(scales[0, 0]):.6g}, bias {float(biases[0, 0])}, -1 and 1 become {y[0, 0]:.6g} and {y[0, -1]:.6g}; "
          f"largest error {worst / step:.2f} of an even step")
    return float(y[0, 0]), float(y[0, -1]), worst / step

seen = {bits: ends(bits) for bits in (2, 3, 4, 5, 6, 8)}
ok = seen[2][:2] == (-0.5, 1) and seen[5][:2] == (-0.9375, 1) and seen[2][2] > 0.74 and seen[5][2] > 0.9
raise SystemExit(not (ok and all(abs(seen[bits][0] + 1) < 1e-6 for bits in (3, 4, 6, 8))))
END
