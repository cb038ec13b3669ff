#!/usr/bin/env bash
# What torchao's MXFP8 with RCEIL scales makes of groups whose scale is the smallest one, 2^-127.
# guess: data are divided by the scale that is stored: 2^-127 (code 0) times 0.5, 1, 100 and 300 come back as 0.5, 1, 96 and 288 times it.
# seen:  in torchao 0.18.0, with RCEIL and code 0 data are multiplied by 1, and the whole group becomes 0; with code 1, 2^-126, it is as guessed. With FLOOR
#        and code 0 data are divided by 2^-126 (a comment in the source says so), and come back as their half.
. "$(dirname "$0")/common.sh"
with_packages torchao==0.18.0 torch==2.15.0 numpy==2.4.6 <<'END'
import torch
from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_mx

factors = torch.tensor([0.5, 1.0, 100.0, 300.0])

def back(exponent, mode):
    x = torch.zeros(1, 32, dtype=torch.float64)
    x[0, :4], x[0, 4] = factors.double() * 2.0**exponent, 320 * 2.0**exponent
    scale, data = to_mx(x.float(), torch.float8_e4m3fn, 32, mode)
    code = int(scale.view(torch.uint8))
    return code, (data.double()[0, :4] * 2.0 ** (code - 127) / 2.0**exponent).tolist()

seen = {}
for mode in (ScaleCalculationMode.RCEIL, ScaleCalculationMode.FLOOR):
    for exponent in (-127, -126):
        seen[mode.name, exponent] = code, values = back(exponent, mode)
        print(f"{mode.name}, {factors.tolist()} times 2^{exponent}: code {code}, back {values}")
there, half = [0.5, 1.0, 96.0, 288.0], [0.25, 0.5, 48.0, 144.0]
raise SystemExit(not (seen == {("RCEIL", -127): (0, [0.0] * 4), ("RCEIL", -126): (1, there), ("FLOOR", -127): (0, half),
                               ("FLOOR", -126): (1, there)}))
END
