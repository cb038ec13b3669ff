#!/usr/bin/env bash
# Which power of two torchao takes as a scale where the amax lies just above 448 times a power.
# guess: the smallest one that keeps amax / scale at or below 448: of 448 (1 + 2^-23) 2^-20 the scale is 2^-19, at any exponent. So do
#        RCEIL's definition (cuBLAS: 2^ceil(log2(amax / 448))) and float8's scales "rounded down to the nearest power of two".
# seen:  in torchao 0.18.0 log2 is taken in float32, whose numbers near 20 are 2^-19 apart, so the ratio counts as the power itself: the scale is 2^-20
#        for exponent -20, 2^20 for 20. For exponent 0 both are as guessed.
. "$(dirname "$0")/common.sh"
with_packages torchao==0.18.0 torch==2.15.0 numpy==2.4.6 <<'END'
import math

import torch
from torchao.float8.float8_utils import amax_to_scale
from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_mx

rceil, rounded = [], []
for exponent in (-20, 0, 20):
    amax = torch.nextafter(torch.tensor(448 * 2.0**exponent), torch.tensor(float("inf")))
    scale, _ = to_mx(torch.full((1, 32), amax.item()), torch.float8_e4m3fn, 32, ScaleCalculationMode.RCEIL)
    rceil.append(int(scale.view(torch.uint8)) - 127 - exponent)
    inverse = amax_to_scale(amax, torch.float8_e4m3fn, round_scales_to_power_of_2=True).item()
    rounded.append(-int(math.log2(inverse)) - exponent)
    print(f"amax {amax.item():.9g} > 448 x 2^{exponent}: scale 2^{rceil[-1] + exponent} by RCEIL, 2^{rounded[-1] + exponent} rounded")
raise SystemExit(not (rceil == [0, 1, 0] and rounded == [0, 1, 0]))
END
