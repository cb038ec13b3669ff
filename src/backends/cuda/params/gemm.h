// y = alpha op(a) op(b) + c, row-major; alpha = scale_a * scale_b, scalars on the device (absent:
// 1); c may be y itself. Operands a, b, c, scale_a, scale_b.
#pragma once

#include <cstdint>

#include "formats/dtype.h"

namespace octet::cuda {

struct GemmParams {
  int64_t m = 0, n = 0, k = 0;  // y is [m, n]
  Dtype a = Dtype::bf16, b = Dtype::bf16, c = Dtype::bf16, y = Dtype::bf16;
  bool trans_a = false, trans_b = false;  // op transposes: a is stored [k, m], b [n, k]
  bool has_c = false;
  bool fast_accumulate = false;  // of FP8 products: fewer bits in the accumulator
  bool tf32 = false;             // of f32 products: factors rounded to TF32
};

}  // namespace octet::cuda
