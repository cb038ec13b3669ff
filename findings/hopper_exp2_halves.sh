#!/usr/bin/env bash
# How torch computes 2^x in float32 on a Hopper GPU (an H200; driver 580.159), for x = i / 1024: the hardware's ex2.approx.
# guess: a whole number in x moves nothing but the exponent, so that 2^(x - 1) is half of 2^x to the bit, as on a CPU.
# seen:  in torch 2.11.0 for x in [0, 1) 991 of 1024 results of x - 1 are not half of those of x, but one to three units of the last place
#        less; those of x - 2 and x - 60 are half and a 2^-59th of x - 1's, and those of x + 1 and x + 60 multiples of x's: there are
#        two tables, one for x >= 0 and one for x < 0. On a CPU no result differs.
. "$(dirname "$0")/common.sh"
with_packages torch==2.11.0 numpy==2.4.6 <<'END'
import torch

if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
    print("needs a Hopper GPU")
    raise SystemExit(77)
x = torch.arange(1024, dtype=torch.float32) / 1024
seen = {}
for device in ("cpu", "cuda"):
    power = {n: torch.exp2((x + n).to(device)).cpu() * 2.0 ** -n for n in (-60, -2, -1, 0, 1, 60)}
    seen[device] = [int((power[n] != power[0]).sum()) for n in (-1, 1, 60)] + [int((power[n] != power[-1]).sum()) for n in (-2, -60)]
    largest = (power[0].view(torch.int32) - power[-1].view(torch.int32)).max().item()
    print(f"{device}: of x - 1, x + 1, x + 60 beside x, and of x - 2, x - 60 beside x - 1: {seen[device]} differ, at most by {largest} units")
raise SystemExit(seen != {"cpu": [0] * 5, "cuda": [991, 0, 0, 0, 0]})
END
