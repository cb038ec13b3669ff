#!/usr/bin/env bash
# Errors of bytes, as pictures have them.
# guess: differences are numbers: 0 beside 255 has an absolute error of 255 and a squared one of 65025, as PSNR of the same
#        package has it.
# seen:  torchmetrics 1.9.0 subtracts bytes, which wrap: MeanAbsoluteError of [0] and [255] is 1, of [255] and [0] 255, and
#        MeanSquaredError of both is 1. A picture that is white in the place of black has nearly no error.
. "$(dirname "$0")/common.sh"
with_packages torchmetrics==1.9.0 torch==2.15.0 numpy==2.4.6 <<'END'
import torch
from torchmetrics.image import PeakSignalNoiseRatio
from torchmetrics.regression import MeanAbsoluteError, MeanSquaredError

black, white = torch.zeros(64, dtype=torch.uint8), torch.full((64,), 255, dtype=torch.uint8)
seen = {}
for name, make in (("MeanAbsoluteError", MeanAbsoluteError), ("MeanSquaredError", MeanSquaredError),
                   ("PeakSignalNoiseRatio", lambda: PeakSignalNoiseRatio(data_range=255.0))):
    seen[name] = [float(make()(*pair)) for pair in ((black, white), (white, black), (black.float(), white.float()))]
    print(f"{name}: black for white {seen[name][0]}, white for black {seen[name][1]}, in float32 {seen[name][2]}")
raise SystemExit(seen != {"MeanAbsoluteError": [1, 255, 255], "MeanSquaredError": [1, 1, 65025], "PeakSignalNoiseRatio": [0, 0, 0]})
END
