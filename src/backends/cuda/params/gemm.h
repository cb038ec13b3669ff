// y = alpha op(a) op(b) + c, row-major; alpha = scale_a * scale_b, scalars on the device (absent:
// 1), times `factor`; y may be e4m3 where factors are and there is no c; c may be y itself.
// Operands a, b, c, scale_a, scale_b. With has_bias c is a row of y's type instead, added to every
// row before the sum is rounded, which the library's "high_precision", "fp8" and "decoded" products
// do where they round to y themselves. Where a factor has blocks its scale is a grid instead, f32,
// bf16 or e8m0, row-major, an entry for a_rows x a_cols elements of a as it lies.
#pragma once

#include <cstdint>

#include "formats/dtype.h"

namespace octet::cuda {

struct GemmBlocks {
  int32_t rows = 0, cols = 0;  // 0: one scale for all
  constexpr bool none() const { return rows == 0; }
  constexpr bool is(int32_t r, int32_t c) const { return rows == r && cols == c; }
};

// The rows of gemm: few rows, and some more with 8-bit weights, by kernels of our own; factors that
// the library multiplies as they are: high precision, or FP8 with one scale each, with a scale a
// row, or in blocks of 128; all other data in eight bits, decoded.
enum class GemmKind : uint8_t {
  few_rows,
  weight_only,
  high_precision,
  fp8,
  by_rows,
  blocks,
  decoded
};

struct GemmParams {
  int64_t m = 0, n = 0, k = 0;  // y is [m, n]
  GemmBlocks a_blocks = {}, b_blocks = {};
  Dtype a = Dtype::bf16, b = Dtype::bf16, c = Dtype::bf16, y = Dtype::bf16;
  bool trans_a = false, trans_b = false;  // op transposes: a is stored [k, m], b [n, k]
  bool has_c = false, has_bias = false;
  bool fast_accumulate = false;  // of FP8 products: fewer bits in the accumulator
  bool checks_sums = false;      // only algorithms that add as math/tensor_sums.h says
  bool tf32 = false;             // of f32 products: factors rounded to TF32
  Dtype a_scales = Dtype::f32, b_scales = Dtype::f32;
  bool has_scale_a = false, has_scale_b = false;
  bool b_is_constant = false;                   // nothing that runs beside or before writes b
  bool fp8_products = true, fp8_blocks = true;  // of the device: target/architecture.h
  GemmKind kind = GemmKind::high_precision;
  float factor = 1;   // of codes 1 / their scale
  int64_t lda = 0;    // of a transposed a: elements from a row to the next; 0: m
  int64_t batch = 1;  // so many of each, one behind the other; high precision alone
};

}  // namespace octet::cuda
