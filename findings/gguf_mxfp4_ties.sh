#!/usr/bin/env bash
# How the gguf package rounds numbers half way between two values of MXFP4.
# guess: to the even code, as its BF16 does and as ml_dtypes rounds E2M1: beside a 4, whose group has the scale 1, 0.75 becomes
#        1, 1.75 becomes 2, 3.5 becomes 4.
# seen:  in gguf 0.19.0 each tie goes to the value nearer to zero: 0.5, 1.5 and 3, with either sign.
. "$(dirname "$0")/common.sh"
with_packages gguf==0.19.0 ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import gguf
import ml_dtypes
import numpy as np

ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]
group = np.zeros(32, np.float32)
group[:15] = [4, *ties, *(-x for x in ties)]
kind = gguf.GGMLQuantizationType.MXFP4
codes = gguf.quants.quantize(group, kind)
stored = gguf.quants.dequantize(codes, kind)[:15].tolist()
even = group.astype(ml_dtypes.float4_e2m1fn).astype(np.float32)[:15].tolist()
bf16 = gguf.GGMLQuantizationType.BF16
short = gguf.quants.dequantize(gguf.quants.quantize(np.array([1 + 2**-8, 1 + 3 * 2**-8], np.float32), bf16), bf16).tolist()
print(f"ties {ties}: gguf {stored[1:8]}, and of their negatives {stored[8:]}; ml_dtypes {even[1:8]}")
print("two ties of BF16 in gguf:", short)
down = [0, 0.5, 1, 1.5, 2, 3, 4]
ok = stored == [4, *down, *(-x for x in down)] and even[:8] == [4, 0, 1, 1, 2, 2, 4, 4]
raise SystemExit(not (ok and short == [1, 1.015625]))
END
