#include "backends/cpu/elementwise/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/elementwise/reduce.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd-inl.h"
#include "backends/cpu/elementwise/quantized_matrix.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

using F64 = hn::Repartition<double, F32>;
using VD = hn::Vec<F64>;

#if HWY_TARGET == HWY_SCALAR
struct Wide {
  VD lo;
};
HWY_INLINE Wide widen(VF v) {
  return {hn::PromoteTo(hn::Rebind<double, F32>(), v)};
}
template <typename Fn>
HWY_INLINE void each_half(Wide w, Fn fn) {
  fn(w.lo);
}
#else
template <typename Fn>
HWY_INLINE void each_half(VF v, Fn fn) {
  const hn::Half<F32> half;
  fn(hn::PromoteTo(F64(), hn::LowerHalf(half, v)));
  fn(hn::PromoteTo(F64(), hn::UpperHalf(half, v)));
}
HWY_INLINE VF widen(VF v) {
  return v;
}
#endif

// Adds the squares of the low half of v to a, and of the high half to b.
HWY_INLINE void add_squares(VF v, VD& a, VD& b) {
  VD* sums[] = {&a, &b};
  int which = 0;
  each_half(widen(v), [&](VD d) HWY_ATTR {
    VD& sum = *sums[which++];
    sum = hn::MulAdd(d, d, sum);
  });
}

// Four sums side by side, so that one addition need not wait for the last.
double SquaresBlock(In x, int64_t begin, int64_t end) {
  VD s[4] = {hn::Zero(F64()), hn::Zero(F64()), hn::Zero(F64()), hn::Zero(F64())};
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t i = begin;
  for (; i + 2 * lanes <= end; i += 2 * lanes) {
    add_squares(load(Full(), x, i), s[0], s[1]);
    add_squares(load(Full(), x, i + lanes), s[2], s[3]);
  }
  for_lanes(i, end, [&](int64_t k, auto io) HWY_ATTR { add_squares(load(io, x, k), s[0], s[1]); });
  const VD sum = hn::Add(hn::Add(s[0], s[1]), hn::Add(s[2], s[3]));
  return hn::GetLane(hn::SumOfLanes(F64(), sum));
}

double SumBlock(In x, int64_t begin, int64_t end) {
  VD s = hn::Zero(F64());
  for_lanes(begin, end, [&](int64_t i, auto io) HWY_ATTR {
    each_half(widen(load(io, x, i)), [&](VD d) HWY_ATTR { s = hn::Add(s, d); });
  });
  return hn::GetLane(hn::SumOfLanes(F64(), s));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(SquaresBlock);
HWY_EXPORT(SumBlock);

namespace {

template <typename Kernel>
void reduce_blocks(Kernel kernel, In x, int64_t n, double* scratch, ThreadPool& pool) {
  for_blocks(pool, n, kBlockElems, [&](int64_t begin, int64_t end, int) {
    scratch[begin / kBlockElems] = kernel(x, begin, end);
  });
}

double add_in_order(const double* values, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += values[i];
  return total;
}

}  // namespace

SumOfSquares sum_of_squares(In x, int64_t n, double* scratch, ThreadPool& pool) {
  reduce_blocks(HWY_DYNAMIC_DISPATCH(SquaresBlock), x, n, scratch, pool);
  const double total = add_in_order(scratch, reduce_scratch(n));
  return {total, std::isfinite(total)};
}

double sum(In x, int64_t n, double* scratch, ThreadPool& pool) {
  reduce_blocks(HWY_DYNAMIC_DISPATCH(SumBlock), x, n, scratch, pool);
  return add_in_order(scratch, reduce_scratch(n));
}

void row_sums(In x, float* y, RowShape shape, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(SumBlock);
  const int64_t block = std::max<int64_t>(1, kBlockElems / std::max<int64_t>(1, shape.cols));
  for_blocks(pool, shape.rows, block, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row)
      y[row] = static_cast<float>(kernel(x, row * shape.cols, (row + 1) * shape.cols));
  });
}

Amax amax(In x, int64_t n, double* scratch, ThreadPool& pool) {
  const auto of_block = [](In x, int64_t begin, int64_t end) {
    return signed_amax(offset(x, begin), end - begin);
  };
  reduce_blocks(of_block, x, n, scratch, pool);
  double top = 0;
  bool finite = true;
  for (int64_t i = 0; i < reduce_scratch(n); ++i) {
    finite = finite && !std::signbit(scratch[i]);
    top = std::max(top, std::abs(scratch[i]));
  }
  return {static_cast<float>(top), finite};
}

}  // namespace octet::cpu
#endif
