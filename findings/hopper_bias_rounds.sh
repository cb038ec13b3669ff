#!/usr/bin/env bash
# How torch._scaled_mm adds a bias to an 8-bit product on a Hopper GPU (an H200): y = scale sum + bias.
# guess: by one fused multiply-add in float32, as the same library adds a matrix (beta C): where scale sum is -bias but for its rounding,
#        that rounding is left.
# seen:  in torch 2.11.0 (cuBLASLt 13) scale sum is rounded to float32 first: the result is exactly what two roundings leave, mostly 0.
. "$(dirname "$0")/common.sh"
with_packages torch==2.11.0 numpy==2.4.6 <<'END'
import torch

if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
    print("needs a Hopper GPU")
    raise SystemExit(77)
torch.manual_seed(0)
a, b = (torch.randn(n, 64, device="cuda").to(torch.float8_e4m3fn) for n in (32, 16))
one = torch.ones((), device="cuda")
sums = torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.float32)
fused = rounded = told = 0
for row in range(32):
    bias = -sums[row].bfloat16()
    scale = (-bias[0].float() / sums[row, 0]).reshape(()).clone()
    y = torch._scaled_mm(a, b.t(), scale_a=scale, scale_b=one, out_dtype=torch.bfloat16, bias=bias)[row, 0]
    twice = (scale * sums[row, 0] + bias[0].float()).bfloat16()
    once = (scale.double() * sums[row, 0].double() + bias[0].double()).bfloat16()
    if once == twice:
        continue
    told, fused, rounded = told + 1, fused + int(y == once), rounded + int(y == twice)
print(f"of {told} results that tell, {rounded} are of two roundings, {fused} of one")
raise SystemExit(told < 16 or rounded != told)
END
