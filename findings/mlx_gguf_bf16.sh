#!/usr/bin/env bash
# In which type mlx loads the bfloat16 tensors of a GGUF file.
# guess: bfloat16, which mlx has: its numbers as they are.
# seen:  in mlx 0.32.4 float16, which its documentation has for quantizations that mlx lacks: 2^20 becomes infinite and 2^-30 becomes 0.
#        float32 stays float32, and from safetensors bfloat16 comes back as it was.
. "$(dirname "$0")/common.sh"
with_packages "mlx[cpu]==0.32.4" gguf==0.19.0 numpy==2.4.6 <<'END'
import gguf
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
numbers = np.array([1, 1.0078125, 2.0**20, -(2.0**100), 2.0**-30, 65536, 65280, 3] * 4, np.float32)
writer = gguf.GGUFWriter("x.gguf", "llama")
kind = gguf.GGMLQuantizationType.BF16
writer.add_tensor("brief", gguf.quants.quantize(numbers, kind), raw_dtype=kind)
writer.add_tensor("float", numbers)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
mx.save_safetensors("x.safetensors", {"brief": mx.array(numbers).astype(mx.bfloat16)})
read, safe = mx.load("x.gguf"), mx.load("x.safetensors")

def seen(name, x):
    values = np.array(x.astype(mx.float32))[:8].tolist()
    print(f"{name}: {x.dtype} {values}")
    return x.dtype, values

inf = float("inf")
print(f"written: {numbers[:8].tolist()}")
ok = seen("GGUF, bfloat16", read["brief"]) == (mx.float16, [1, 1.0078125, inf, -inf, 0, inf, 65280, 3])
ok &= seen("GGUF, float32", read["float"]) == (mx.float32, numbers[:8].tolist())
ok &= seen("safetensors, bfloat16", safe["brief"]) == (mx.bfloat16, numbers[:8].tolist())
raise SystemExit(not ok)
END
