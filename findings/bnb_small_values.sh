#!/usr/bin/env bash
# What bitsandbytes' blockwise quantization on a CPU makes of values far below the largest of their block.
# guess: the nearest of the 256 values of the code that the state holds: 1e-6 in a block with 1.0 becomes 5.5e-7, and 1e-5
#        becomes 7.75e-6.
# seen:  in bitsandbytes 0.50.2 both become 2.125e-5, and so do 2e-6 and 5e-6: of the code's seven decades the two smallest are not reached, with either sign.
#        Values from 1.6e-5 on get their nearest one, but for a few in a thousand that lie near the middle between two. The
#        8-bit optimizers store their moments so.
. "$(dirname "$0")/common.sh"
with_packages bitsandbytes==0.50.2 torch==2.15.0 numpy==2.4.6 <<'END'
import bitsandbytes.functional as F
import torch

small = torch.tensor([1e-6, 2e-6, 5e-6, 1e-5])
large = torch.tensor([1.6e-5, 5e-5, 1e-3, 0.1])
x = torch.zeros(256)
x[0] = 1
x[1:5], x[5:9], x[9:13] = small, -small, large
codes, state = F.quantize_blockwise(x, blocksize=256)
got = F.dequantize_blockwise(codes, state)
nearest = state.code[(x[:, None] - state.code[None]).abs().argmin(1)]
for name, y in (("stored", got), ("nearest", nearest)):
    print(name, [f"{v:.4g}" for v in y[1:13].tolist()])
lost = torch.full((4,), 2.125e-5)
raise SystemExit(not (torch.allclose(got[1:5], lost) and torch.allclose(got[5:9], -lost) and (nearest[1:5] < 1e-5).all()
                      and torch.equal(got[9:13], nearest[9:13])))
END
