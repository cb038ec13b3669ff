#include "backends/cpu/loss/cross_entropy.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/loss/cross_entropy.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd_math-inl.h"
#include "base/error.h"
#include "formats/bf16.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kSumBlock = 4096;  // f32 sums inside, double across

float LogSumExp(In x, int64_t n) {
  VF top = set(-std::numeric_limits<float>::infinity());
  for_lanes(0, n, [&](int64_t i, auto io) HWY_ATTR {
    top = hn::Max(top, keep_lanes(io, load(io, x, i), -std::numeric_limits<float>::infinity()));
  });
  const float highest = max_of(top);
  // Nothing above -Inf: no shift, so that the differences below stay defined and a NaN shows.
  const float m = highest == -std::numeric_limits<float>::infinity() ? 0.0f : highest;
  const VF shift = set(m);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    VF s = zero();
    for_lanes(begin, std::min(n, begin + kSumBlock), [&](int64_t i, auto io) HWY_ATTR {
      const VF e = exp_nonpositive(hn::Sub(load(io, x, i), shift));
      s = hn::Add(s, keep_lanes(io, e, 0.0f));
    });
    total += sum_of(s);
  }
  return m + static_cast<float>(std::log(total));
}

float Mean(In x, int64_t n) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    VF s = zero();
    for_lanes(begin, std::min(n, begin + kSumBlock), [&](int64_t i, auto io) HWY_ATTR {
      s = hn::Add(s, keep_lanes(io, load(io, x, i), 0.0f));
    });
    total += sum_of(s);
  }
  return static_cast<float>(total / static_cast<double>(n));
}

void SoftmaxGradient(In x, Out dx, const CrossEntropyRow& row, int64_t n) {
  const VF shift = set(row.lse), share = set(row.share), factor = set(row.scale);
  for_lanes(0, n, [&](int64_t i, auto io) HWY_ATTR {
    // A rounded lse may leave the difference a little above 0: the general exponential.
    const VF p = exp_f32(hn::Sub(load(io, x, i), shift));
    store(io, hn::Mul(hn::Sub(p, share), factor), dx, i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(LogSumExp);
HWY_EXPORT(Mean);
HWY_EXPORT(SoftmaxGradient);

namespace {

float element(In x, int64_t i) {
  if (x.dtype == Dtype::f32) return static_cast<const float*>(x.data)[i];
  return f32_from_bf16(static_cast<const uint16_t*>(x.data)[i]);
}

// One class's gradient, with a NaN as the vectors round it.
void put_element(Out dx, int64_t i, float value) {
  if (dx.dtype == Dtype::f32) {
    static_cast<float*>(dx.data)[i] = value;
  } else {
    const auto quiet = static_cast<uint16_t>(bits_of(value) >> 16 | 0x40u);
    static_cast<uint16_t*>(dx.data)[i] = is_nan(value) ? quiet : bf16_from_f32(value);
  }
}

void check_label(int32_t label, int64_t classes) {
  if (label < -1 || label >= classes) {
    throw Error(ErrorCode::bad_data, "[cross_entropy] label must be in [-1, {}), got {}", classes,
                label);
  }
}

constexpr int64_t kRows = 4;

}  // namespace

void cross_entropy(const CrossEntropy& a, CrossEntropyShape shape, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(LogSumExp);
  const auto mean = HWY_DYNAMIC_DISPATCH(Mean);
  for_blocks(pool, shape.rows, kRows, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int32_t label = a.labels[r];
      check_label(label, shape.classes);
      const In x = offset(a.logits, r * shape.classes);
      a.lse[r] = kernel(x, shape.classes);
      a.loss[r] = label < 0 ? 0.0f : a.lse[r] - element(x, label);
      if (shape.smoothing == 0) continue;
      const float above = label < 0 ? 0.0f : element(x, label) - mean(x, shape.classes);
      a.smoothed[r] = a.loss[r] + shape.smoothing * above;
    }
  });
}

void cross_entropy_backward(const CrossEntropyBackward& a, CrossEntropyShape shape,
                            ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(SoftmaxGradient);
  const float scale = (a.inv_n ? *a.inv_n : 1.0f) * (a.dloss ? *a.dloss : 1.0f);
  const float share = shape.smoothing / static_cast<float>(shape.classes);
  for_blocks(pool, shape.rows, kRows, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int32_t label = a.labels[r];
      check_label(label, shape.classes);
      const In x = offset(a.logits, r * shape.classes);
      const Out dx = offset(a.dlogits, r * shape.classes);
      const int64_t row_bytes = bytes_of(dx.dtype, shape.classes);
      if (label < 0) {
        std::memset(dx.data, 0, static_cast<size_t>(row_bytes));
        continue;
      }
      const float factor = a.row_dloss ? scale * a.row_dloss[r] : scale;
      const float p = std::exp(element(x, label) - a.lse[r]);
      // From the logit before it may be overwritten.
      const float at_label = (p - share - (1.0f - shape.smoothing)) * factor;
      kernel(x, dx, {.lse = a.lse[r], .share = share, .scale = factor}, shape.classes);
      put_element(dx, label, at_label);
    }
  });
}

}  // namespace octet::cpu
#endif
