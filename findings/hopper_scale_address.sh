#!/usr/bin/env bash
# Which scales torch._scaled_mm takes on a Hopper GPU (an H200): elements of a tensor of scales, as a model keeps one for each layer.
# guess: any float32 on the device: the scale is read as one number, and torch checks type and size alone.
# seen:  in torch 2.11.0 (cuBLASLt 13) an element whose address is a multiple of 16 bytes; of eight scales in one tensor the first and the
#        fifth. The others end in CUBLAS_STATUS_NOT_SUPPORTED, which names shapes and types and says nothing of the address; a clone of
#        them is taken.
. "$(dirname "$0")/common.sh"
with_packages torch==2.11.0 numpy==2.4.6 <<'END'
import torch

if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
    print("needs a Hopper GPU")
    raise SystemExit(77)
a = torch.ones(32, 64, device="cuda").to(torch.float8_e4m3fn)
scales = torch.full((8,), 0.5, device="cuda")
one = torch.ones((), device="cuda")

def is_taken(scale):
    try:
        y = torch._scaled_mm(a, a.t(), scale_a=scale, scale_b=one, out_dtype=torch.bfloat16)
        torch.cuda.synchronize()
        return y[0, 0].item() == 32
    except RuntimeError as error:
        return str(error).split()[2]

elements = [is_taken(scales[i]) for i in range(8)]
clones = [is_taken(scales[i].clone()) for i in range(8)]
print(f"elements {elements}, clones {clones}")
refused = "CUBLAS_STATUS_NOT_SUPPORTED"
raise SystemExit(elements != [True, refused, refused, refused] * 2 or clones != [True] * 8)
END
