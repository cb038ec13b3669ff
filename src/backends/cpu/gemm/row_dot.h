// A product of few rows with a transposed matrix, which is read once from where it lies:
//   c[r][j] = sum_k a[r][k] b[j][k],  j < kRowColumns
// with a and c f32 and b f32 or bf16. Each element is a sum in the fixed order of DotOrder, so a
// row's bits depend on the row and on b alone, and are those of a library that adds in that order.
#pragma once

#include "backends/cpu/gemm/row_product.h"
#include "formats/dtype.h"

namespace octet::cpu {

// How the products of a run are added:
//   steps  one chain of fused multiply-adds
//   dots   the same, of each two elements the second first, denormals as zeros (VDPBF16PS)
//   tiles  for each 32 elements, a chain of the even and one of the odd ones from zero, which are
//          added, and then to the sum; denormals as zeros (TDPBF16PS)
enum class DotChain : uint8_t { steps, dots, tiles };

// Its runs are added one after the other.
struct DotOrder {
  DotChain chain = DotChain::steps;
  SumOrder runs = {};
};

inline constexpr int64_t kDotDepth = 32;  // k is a multiple of it

// One run. Row strides in elements; c [m, kRowColumns] is dense and overlaps neither a nor b.
struct RowDot {
  const float* a = nullptr;
  int64_t a_stride = 0;
  const void* b = nullptr;
  int64_t b_stride = 0;
  Dtype b_dtype = Dtype::f32;  // bf16 where the chain is of dots or tiles
  float* c = nullptr;
  int64_t m = 0, k = 0;
  DotChain chain = DotChain::steps;
  RowSum sum = RowSum::overwrite;  // or carry
  int64_t ahead = 0;               // bytes from what is read to what is fetched meanwhile
};
void dot_rows(const RowDot& dot);

}  // namespace octet::cpu
