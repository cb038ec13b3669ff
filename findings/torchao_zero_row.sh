#!/usr/bin/env bash
# What torchao's Float8WeightOnlyConfig makes of a row of weights that is all zero, as a pruned unit has it.
# guess: zeros: the scale has a lower limit, as that of Int8WeightOnlyConfig has.
# seen:  in torchao 0.18.0 the scale of the row is 0 and its codes are NaN, so that the output of that unit is NaN, in float32
#        and in bfloat16. With Int8WeightOnlyConfig the same row stays zero.
. "$(dirname "$0")/common.sh"
with_packages torchao==0.18.0 torch==2.15.0 numpy==2.4.6 <<'END'
import torch
from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig, quantize_

def outputs(config, kind):
    model = torch.nn.Sequential(torch.nn.Linear(16, 3, bias=False, dtype=kind))
    model[0].weight.data = torch.tensor([[1.0], [0.0], [2.0]], dtype=kind).repeat(1, 16)
    quantize_(model, config)
    with torch.no_grad():
        y = model(torch.ones(1, 16, dtype=kind))[0].tolist()
    print(f"{type(config).__name__}, {kind}: scales {model[0].weight.scale.flatten().tolist()}, outputs of rows of ones, zeros, twos: {y}")
    return model[0].weight.scale.flatten()[1].item(), y

ok = True
for kind in (torch.float32, torch.bfloat16):
    scale, (one, zero, two) = outputs(Float8WeightOnlyConfig(), kind)
    ok &= scale == 0 and zero != zero and (one, two) == (16, 32)
    scale, (one, zero, two) = outputs(Int8WeightOnlyConfig(), kind)
    ok &= scale > 0 and zero == 0
raise SystemExit(not ok)
END
