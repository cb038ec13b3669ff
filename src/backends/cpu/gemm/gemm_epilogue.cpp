#include "backends/cpu/gemm/gemm_epilogue.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm/gemm_epilogue.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

void Epilogue(const GemmEpilogue& a, int64_t rows, int64_t cols) {
  const VF alpha = set(a.alpha);
  const bool bare = !a.bias && !a.addend && a.alpha == 1.0f;
  if (bare && a.acc_stride == cols && a.stride == cols) {  // dense rows are one
    cols *= rows;
    rows = 1;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const float* const acc = a.acc + r * a.acc_stride;
    const Out c = offset(a.c, r * a.stride);
    if (bare) {
      for_lanes(0, cols, [&](int64_t i, auto io) HWY_ATTR { store(io, io.load(acc + i), c, i); });
      continue;
    }
    const In addend = offset(a.addend, r * a.stride);
    for_lanes(0, cols, [&](int64_t i, auto io) HWY_ATTR {
      VF v = hn::Mul(alpha, io.load(acc + i));
      if (a.bias) v = hn::Add(v, load(io, a.bias, i));
      if (addend) v = hn::Add(v, load(io, addend, i));
      store(io, v, c, i);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(Epilogue);

void gemm_epilogue(const GemmEpilogue& args, int64_t rows, int64_t cols) {
  HWY_DYNAMIC_DISPATCH(Epilogue)(args, rows, cols);
}

}  // namespace octet::cpu
#endif
