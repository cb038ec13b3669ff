// A product of some rows with a transposed matrix, which is read once from where it lies, without a
// transposition: the lanes of a vector are rows of a, and each element of b meets all of them.
//   c[r][j] = sum_k a[r][k] b[j][k],  j < kRowColumns
// The sums are those of dot_rows (row_dot.h) of the same chain, to the bit: `steps` of any machine,
// `dots` where it has the instruction for them (has_dot_lanes), of which they are one or none.
#pragma once

#include <cstdint>

#include "backends/cpu/gemm/line_fetch.h"
#include "backends/cpu/gemm/row_dot.h"

namespace octet::cpu {

inline constexpr int64_t kLaneRows = 16;  // the rows of a are filled up with zeros to these

// True if this machine multiplies pairs of BF16 at once (VDPBF16PS).
bool has_dot_lanes();

// One run, as RowDot has it. `a` holds its rows side by side, a_stride of them, a multiple of
// kLaneRows: element (r, k) at a[k a_stride + r] in f32, or with the chain of dots words of two
// bf16, (r, k) and (r, k + 1) at word a[k / 2 a_stride + r] for even k. b of f32, or of bf16 where
// k is even.
struct RowLanes {
  const void* a = nullptr;
  int64_t a_stride = 0;
  const void* b = nullptr;
  int64_t b_stride = 0;
  Dtype b_dtype = Dtype::f32;
  float* c = nullptr;  // [m, kRowColumns]
  int64_t m = 0, k = 0;
  DotChain chain = DotChain::steps;  // or dots
  RowSum sum = RowSum::overwrite;    // or carry
  Fetch fetch = Fetch::none;
};
void multiply_lanes(const RowLanes& product);

}  // namespace octet::cpu
