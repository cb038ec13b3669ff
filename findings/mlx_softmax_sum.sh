#!/usr/bin/env bash
# What the probabilities of mlx's softmax add up to in bfloat16 and float16, on a CPU.
# guess: to 1 but for the rounding of each, as its exponentials are added in float32; its argument precise changes the last bit.
# seen:  in mlx 0.32.4 they are added in the type itself, and 256 and 1 are 256 in bfloat16: each of n equal logits has 1/256 at the
#        least. The probabilities of a thousand add up to 3.9, of five thousand to 19.5, and in float16 to 2.4. With precise=True
#        they add up to 1; logsumexp and the sum of ones are right without it.
. "$(dirname "$0")/common.sh"
with_packages "mlx[cpu]==0.32.4" numpy==2.4.6 <<'END'
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)

def total(n, kind, **options):
    return float(mx.sum(mx.softmax(mx.zeros((1, n), kind), axis=-1, **options).astype(mx.float32)))

def totals(n, kind):
    plain, precise = total(n, kind), total(n, kind, precise=True)
    log, ones = float(mx.logsumexp(mx.zeros((1, n), kind), axis=-1)[0]), float(mx.sum(mx.ones((1, n), kind)))
    print(f"{n} equal logits in {str(kind).rpartition('.')[2]}: sum of probabilities {plain:.4f}, precise {precise:.4f}; "
          f"logsumexp {log:.4f}, sum of ones {ones:.0f}")
    assert abs(log - np.log(n)) < 0.04 and abs(ones - n) < 0.01 * n
    return plain, precise

ok = True
for n, kind, expected in ((250, mx.bfloat16, 1), (1000, mx.bfloat16, 1000 / 256), (5000, mx.bfloat16, 5000 / 256),
                          (1000, mx.float16, 1), (5000, mx.float16, 5000 / 2048), (5000, mx.float32, 1)):
    plain, precise = totals(n, kind)
    ok &= abs(plain - expected) < 0.01 * expected and abs(precise - 1) < 0.01
raise SystemExit(not ok)
END
