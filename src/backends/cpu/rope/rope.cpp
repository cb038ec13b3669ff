#include "backends/cpu/rope/rope.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/rope/rope.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd-inl.h"
#include "backends/cpu/elementwise/amax_sink.h"
#include "base/error.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

void RotateRow(const Rope& a, const RopeShape& shape, int64_t row, const RopeTurns& turns) {
  const int64_t half = shape.head_size / 2;
  const VF sign = set(a.rotation == Rotation::forward ? 1.0f : -1.0f);
  for (int64_t head = 0; head < shape.heads; ++head) {
    const int64_t first = row * shape.cols() + head * shape.head_size + turns.begin;
    const In x = offset(a.x, first);
    const Out y = offset(a.y, first);
    for_lanes(0, turns.n, [&](int64_t i, auto io) HWY_ATTR {
      const VF c = io.load(turns.cos + i), s = hn::Mul(sign, io.load(turns.sin + i));
      const VF lo = load(io, x, i), hi = load(io, x, i + half);
      store(io, hn::NegMulAdd(hi, s, hn::Mul(lo, c)), y, i);
      store(io, hn::MulAdd(lo, s, hn::Mul(hi, c)), y, i + half);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(RotateRow);

namespace {

using RotateFn = void (*)(const Rope&, const RopeShape&, int64_t, const RopeTurns&);

// A row whose position lies beyond the tables, a few pairs at a time.
void rotate_beyond(const Rope& a, const RopeShape& shape, int64_t row, RotateFn rotate) {
  constexpr int64_t kAtOnce = 256;
  float cos[kAtOnce], sin[kAtOnce];
  const int64_t half = shape.head_size / 2;
  for (int64_t begin = 0; begin < half; begin += kAtOnce) {
    const int64_t n = std::min(kAtOnce, half - begin);
    for (int64_t i = 0; i < n; ++i) {
      const double angle = static_cast<double>(a.positions[row]) * a.frequencies[begin + i];
      cos[i] = static_cast<float>(std::cos(angle));
      sin[i] = static_cast<float>(std::sin(angle));
    }
    rotate(a, shape, row, {cos, sin, begin, n});
  }
}

}  // namespace

void rope(const Rope& a, const RopeShape& shape, ThreadPool& pool) {
  CHECK(shape.head_size % 2 == 0);
  const int64_t half = shape.head_size / 2;
  const auto kernel = HWY_DYNAMIC_DISPATCH(RotateRow);
  for_blocks(pool, shape.tokens, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t position = a.positions[row];
      if (position >= 0 && position < shape.max_positions) {
        kernel(a, shape, row, {a.cos + position * half, a.sin + position * half, 0, half});
      } else {
        rotate_beyond(a, shape, row, kernel);
      }
      if (a.amax != nullptr) a.amax->add(offset(a.y, row * shape.cols()), shape.cols());
    }
  });
}

}  // namespace octet::cpu
#endif
