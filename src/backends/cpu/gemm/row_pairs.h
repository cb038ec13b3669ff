// A product of up to kMaxPairRows rows of BF16 with a transposed matrix, which is read once from
// where it lies, in whole lines: words of two elements of 16 columns are transposed in registers,
// and each meets the pairs of all rows (VDPBF16PS).
//   c[r][j] = sum_k a[r][k] b[j][k],  j < kRowColumns
// The sums are those of dot_rows (row_dot.h) with a chain of dots, to the bit. Where the machine
// has no such instruction (has_dot_lanes, row_lanes.h) there is no product.
#pragma once

#include "backends/cpu/gemm/line_fetch.h"
#include "backends/cpu/gemm/row_dot.h"

namespace octet::cpu {

inline constexpr int64_t kMaxPairRows = 8;

// One run, as RowDot has it, with a and b of bf16; a 4-byte aligned, a_stride even.
struct RowPairs {
  const uint16_t* a = nullptr;
  int64_t a_stride = 0;
  const uint16_t* b = nullptr;
  int64_t b_stride = 0;
  float* c = nullptr;  // [m, kRowColumns]
  int64_t m = 0, k = 0;
  RowSum sum = RowSum::overwrite;  // or carry
  Fetch fetch = Fetch::none;
};
void multiply_pairs(const RowPairs& product);

}  // namespace octet::cpu
