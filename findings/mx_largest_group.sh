#!/usr/bin/env bash
# What compressed-tensors makes of MXFP8 groups whose amax is near the largest float32.
# guess: the scale is at most 2^127, as E8M0 has none beyond it, and the group comes back near what it was: 3.4e38 as 3.3e38 or more.
# seen:  in compressed-tensors 0.20.1, up to just below 1.75 x 2^127 it does. From there on the amax is rounded up to 2^128, which is infinity: the scale is infinite, and
#        the whole group comes back as NaN, 1.0 beside 3e38 too.
. "$(dirname "$0")/common.sh"
with_packages compressed-tensors==0.20.1 torch==2.15.0 numpy==2.4.6 <<'END'
import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
from compressed_tensors.quantization.utils import calculate_qparams

args = QuantizationArgs(num_bits=8, type="float", symmetric=True, strategy="group", group_size=32, scale_dtype=torch.uint8)

def back(largest):
    x = torch.ones(1, 32)
    x[0, 0] = largest
    scale, zero = calculate_qparams(x.amin(1, keepdim=True), x.amax(1, keepdim=True), args)
    codes = quantize(x, scale, zero, args, dtype=torch.float8_e4m3fn)
    y = dequantize(codes, scale, zero, args)
    print(f"a group of {largest:.9g} and ones: scale {scale.item():.9g}, back {y[0, 0].item():.9g} and {y[0, 1].item():.9g}")
    return scale.item(), y[0, 0].item()

bound = 1.75 * 2.0**127
below = torch.nextafter(torch.tensor(bound), torch.tensor(0.0)).item()
small, (scale, value) = back(below), back(bound)
raise SystemExit(not (small == (2.0**119, bound) and scale == float("inf") and value != value))
END
