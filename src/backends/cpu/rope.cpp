#include "backends/cpu/rope.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/rope.cpp"
#include <hwy/foreach_target.h>
#include "backends/cpu/simd_targets.h"

#include "backends/cpu/amax_sink.h"
#include "backends/cpu/simd-inl.h"
#include "base/error.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

void RotateRow(const Rope& a, const RopeShape& shape, int64_t row) {
  const int64_t half = shape.head_size / 2;
  const float* const cos = a.cos + a.positions[row] * half;
  const float* const sin = a.sin + a.positions[row] * half;
  const VF sign = set(a.rotation == Rotation::forward ? 1.0f : -1.0f);
  for (int64_t head = 0; head < shape.heads; ++head) {
    const In x = offset(a.x, row * a.x_stride + head * shape.head_size);
    const Out y = offset(a.y, row * a.y_stride + head * shape.head_size);
    for_lanes(0, half, [&](int64_t i, auto io) HWY_ATTR {
      const VF c = io.load(cos + i), s = hn::Mul(sign, io.load(sin + i));
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

void rope(const Rope& args, const RopeShape& shape, ThreadPool& pool) {
  if (shape.head_size % 2 != 0) {
    throw Error(ErrorCode::invalid_argument, "[rope] head size must be even, got {}",
                shape.head_size);
  }
  Rope a = args;
  if (a.x_stride == 0) a.x_stride = shape.heads * shape.head_size;
  if (a.y_stride == 0) a.y_stride = shape.heads * shape.head_size;
  const auto kernel = HWY_DYNAMIC_DISPATCH(RotateRow);
  for_blocks(pool, shape.tokens, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      if (a.positions[row] < 0 || a.positions[row] >= shape.max_positions) {
        throw Error(ErrorCode::invalid_argument, "[rope] position must be below {}, got {}",
                    shape.max_positions, a.positions[row]);
      }
      kernel(a, shape, row);
      if (a.amax == nullptr) continue;
      a.amax->add(offset(a.y, row * a.y_stride), shape.heads * shape.head_size);
    }
  });
}

}  // namespace octet::cpu
#endif
