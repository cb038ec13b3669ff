#!/usr/bin/env bash
# Which scale MLX gives a group of 32 numbers in its mode "mxfp8" (E4M3 codes, E8M0 scales), on an x86-64 CPU.
# guess: the rule of the OCP MX specification: 2 ** (floor(log2(amax)) - 8), so that a group with the maximum 500 has the scale
#        1 and its maximum is cut to 448.
# seen:  the scale is rounded up to where the maximum fits: 1 for 448 and 2 for 449, so that 500 becomes 512. It has no lower
#        limit: the exponent of a group of 2 ** -120 wraps to the code 255, which is NaN in the specification and decodes as
#        infinity here; the group is all infinity. Numbers of 2 ** -130 come back as 8.5e37.
. "$(dirname "$0")/common.sh"
with_packages "mlx[cpu]==0.32.4" numpy==2.4.6 <<'END'
import platform

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)

def quantized(value):
    codes, scales = mx.quantize(mx.array(np.full((1, 32), value, np.float32)), group_size=32, bits=8, mode="mxfp8")
    back = float(mx.dequantize(codes, scales, group_size=32, bits=8, mode="mxfp8").astype(mx.float32)[0, 0])
    print(f"a group of {value:.4g}: scale code {int(scales[0, 0])}, comes back as {back:.4g}")
    return int(scales[0, 0]), back

ok = quantized(448.0) == (127, 448.0) and quantized(449.0) == (128, 448.0) and quantized(500.0) == (128, 512.0)
ok &= quantized(2.0**-119) == (0, 2.0**-119)
if platform.machine() == "x86_64":
    ok &= quantized(2.0**-120) == (255, float("inf"))
    ok &= quantized(2.0**-130) == (245, 2.0**126)
raise SystemExit(not ok)
END
