#!/usr/bin/env bash
# Casts to 8-bit floats in a Triton kernel that the interpreter runs on a CPU (TRITON_INTERPRET=1), beside torch's.
# guess: to nearest even, as on a card and in torch, and infinity and NaN stay what they are or saturate.
# seen:  triton 3.9.0 rounds ties away from zero (17 to 18), loses the carry into the exponent (1.99 becomes 1, 500 becomes 256) and
#        halves small subnormals away; infinity becomes 256 and NaN 384 in E4M3. Of 4096 normal numbers 123 are others than torch's, and
#        the mean square of the error is ten times as large. Float16 is right.
. "$(dirname "$0")/common.sh"
with_packages triton==3.9.0 torch==2.15.0 numpy==2.4.6 <<'END'
import os

os.environ["TRITON_INTERPRET"] = "1"
import torch
import triton
import triton.language as tl

@triton.jit
def cast(x, y, to: tl.constexpr, n: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, n)
    tl.store(y + at, tl.load(x + at).to(to))

def run(x, to, dtype):
    y = torch.empty(len(x), dtype=dtype)
    cast[(len(x) // 16,)](x, y, to, 16)
    return y.float()

values = [17.0, 19.0, 1.99, 126.24, 500.0, 464.0, 0.0011, 0.003, float("inf"), float("nan")]
x = torch.tensor(values + [0.0] * 6)
got, want = (y[: len(values)].tolist() for y in (run(x, tl.float8e4nv, torch.float8_e4m3fn), x.to(torch.float8_e4m3fn).float()))
print("values      ", values)
print("interpreter ", got)
print("torch       ", want)
normal = torch.randn(4096, generator=torch.Generator().manual_seed(0))
seen = []
for to, dtype in ((tl.float8e4nv, torch.float8_e4m3fn), (tl.float8e5, torch.float8_e5m2), (tl.float16, torch.float16)):
    a, b = run(normal, to, dtype), normal.to(dtype).float()
    ratio = ((a - normal).square().mean() / (b - normal).square().mean()).item()
    seen.append((int((a != b).sum()), round(ratio, 1)))
    print(f"{dtype}: {seen[-1][0]} of 4096 differ, mean square of the error {seen[-1][1]} times torch's")
raise SystemExit(not (got[:3] == [18, 20, 1] and got[3:5] == [64, 256] and got[8:] == [256, 384] and want[:4] == [16, 20, 2, 128]
                      and seen == [(123, 10.6), (196, 5.4), (0, 1.0)]))
END
