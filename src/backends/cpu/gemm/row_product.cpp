#include "backends/cpu/gemm/row_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm/row_product.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd-inl.h"
#include "base/error.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

// Rows [row, row + R) and columns [col, col + V * lanes), a run at a time.
template <int R, int V>
void multiply_block(const RowProduct& p, int64_t row, int64_t col) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool carries = p.sum == RowSum::carry;
  bool adds = p.sum == RowSum::add;
  for (int64_t begin = 0; begin < p.k;) {
    const int64_t end = begin + p.order.next(p.k - begin);
    VF sum[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        const float* const c = p.c + (row + r) * p.c_stride + col;
        sum[r][v] = carries ? hn::LoadU(d, c + v * lanes) : zero();
      }
    }
    const float* b = p.b + begin * p.b_stride + col;
    const float* const a = p.a + row * p.a_stride;
    for (int64_t k = begin; k < end; ++k, b += p.b_stride) {
      VF column[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) column[v] = hn::LoadU(d, b + v * lanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const VF x = set(a[r * p.a_stride + k]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(x, column[v], sum[r][v]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      float* const c = p.c + (row + r) * p.c_stride + col;
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        const VF y = adds ? hn::Add(hn::LoadU(d, c + v * lanes), sum[r][v]) : sum[r][v];
        hn::StoreU(y, d, c + v * lanes);
      }
    }
    adds = true;
    begin = end;
  }
}

template <int R, int V>
void multiply_strip(const RowProduct& p, int64_t row) {
  const int64_t width = V * static_cast<int64_t>(hn::Lanes(F32()));
  static_assert(kRowColumns % (V * HWY_MAX_BYTES / sizeof(float)) == 0);
  for (int64_t col = 0; col < p.n; col += width) multiply_block<R, V>(p, row, col);
}

// Few rows need more columns to keep the multipliers busy. Columns of a block divide kRowColumns.
void MultiplyRows(const RowProduct& p) {
  constexpr int kWide = HWY_MAX_BYTES == 64 ? 2 : 4;
  int64_t row = 0;
  for (; row + 6 <= p.m; row += 6) multiply_strip<6, 2>(p, row);
  switch (p.m - row) {
    case 5:
      return multiply_strip<5, 2>(p, row);
    case 4:
      return multiply_strip<4, 2>(p, row);
    case 3:
      return multiply_strip<3, 2>(p, row);
    case 2:
      return multiply_strip<2, kWide>(p, row);
    case 1:
      return multiply_strip<1, kWide>(p, row);
    default:
      return;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(MultiplyRows);

void multiply_rows(const RowProduct& product) {
  CHECK(product.n % kRowColumns == 0 && product.order.is_known());
  CHECK(product.sum != RowSum::carry || product.order.next(product.k) == product.k);
  HWY_DYNAMIC_DISPATCH(MultiplyRows)(product);
}

}  // namespace octet::cpu
#endif
