#!/usr/bin/env bash
# What mlx's mode "nvfp4" makes of weights of usual size, with the deviation 0.002, where no global_scale is given.
# guess: an error of a tenth, as in "mxfp4" and as of larger weights: a group of 16 has a scale of its own.
# seen:  in mlx 0.32.4 96 of a hundred weights become 0: the scale of a group is amax / 6 in E4M3, whose smallest number is 2^-9, and each
#        group with an amax below 6 x 2^-10 = 0.00586 becomes 0, without a word. Ten times as large, or with the global_scale that
#        quantize does not choose by itself, the error is a tenth.
. "$(dirname "$0")/common.sh"
with_packages "mlx[cpu]==0.32.4" numpy==2.4.6 <<'END'
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)

def back(weights, mode, **options):
    codes, scales = mx.quantize(mx.array(weights.astype(np.float32)), mode=mode, **options)
    return np.array(mx.dequantize(codes, scales, mode=mode, **options).astype(mx.float32))

def error(name, weights, mode, **options):
    y = back(weights, mode, **options)
    relative, zeros = float(np.linalg.norm(y - weights) / np.linalg.norm(weights)), float((y == 0).mean())
    print(f"{name}, deviation {weights.std():.3f}: relative error {relative:.3f}, zeros {zeros:.3f}")
    return relative, zeros

weights = np.random.default_rng(0).normal(0, 0.002, (64, 1024))
small, large, mxfp4 = error("nvfp4", weights, "nvfp4"), error("nvfp4", weights * 10, "nvfp4"), error("mxfp4", weights, "mxfp4")
scaled = error("nvfp4 with global_scale", weights, "nvfp4", global_scale=mx.array(float(abs(weights).max())))
groups = [float(back(np.full((1, 32), amax), "nvfp4")[0, 0]) for amax in (0.0058, 0.0059, 0.006)]
print(f"groups of 0.0058, 0.0059 and 0.006 come back as {groups}")
ok = small[0] > 0.9 and small[1] > 0.9 and all(relative < 0.15 for relative, _ in (large, mxfp4, scaled))
raise SystemExit(not (ok and groups == [0, 0.005859375, 0.005859375]))
END
