// A norm's arithmetic of vectors: math/row_layers.h's in the same order, a register at a time.
#if defined(OCTET_CPU_NORMALIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTET_CPU_NORMALIZE_INL_H_
#undef OCTET_CPU_NORMALIZE_INL_H_
#else
#define OCTET_CPU_NORMALIZE_INL_H_
#endif

#include "backends/cpu/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {

// Statistics of a row, 0 the mean of an RMSNorm.
struct NormLanes {
  VF mean, rstd;
  HWY_INLINE VF normalized(VF x) const { return hn::Mul(hn::Sub(x, mean), rstd); }
  // Elements i on, with the weight and bias that are there.
  template <typename Io>
  HWY_INLINE VF result(VF x, const In& weight, const In& bias, int64_t i, Io io) const {
    VF v = normalized(x);
    if (weight) v = hn::Mul(v, load(io, weight, i));
    if (bias) v = hn::Add(v, load(io, bias, i));
    return v;
  }
};
HWY_INLINE NormLanes norm_lanes(float mean, float rstd) {
  return {set(mean), set(rstd)};
}

}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();
#endif
