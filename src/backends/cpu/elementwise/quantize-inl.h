// Shared parts of the quantizers' vector loops, compiled once for each Highway target.
#if defined(OCTET_CPU_QUANTIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTET_CPU_QUANTIZE_INL_H_
#undef OCTET_CPU_QUANTIZE_INL_H_
#else
#define OCTET_CPU_QUANTIZE_INL_H_
#endif

#include "backends/cpu/common/simd-inl.h"
#include "formats/group_scale.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {

// |v|, and 0 where v is NaN or Inf.
HWY_INLINE VF finite_magnitude(VF v) {
  const VF magnitude = hn::Abs(v);
  const VF inf = hn::BitCast(F32(), hn::Set(U32(), 0x7F800000u));
  return hn::IfThenElseZero(hn::Lt(magnitude, inf), magnitude);
}

// The maximum of magnitudes as integers, where NaN and Inf are above all: what a run of finite
// values needs.
struct MagnitudeLanes {
  hn::Vec<I32> top;
  HWY_INLINE void add(VF v) {
    const auto magnitude = hn::And(hn::BitCast(I32(), v), hn::Set(I32(), 0x7FFFFFFF));
    top = hn::Max(top, magnitude);
  }
  HWY_INLINE VF value() const { return hn::BitCast(F32(), top); }
  HWY_INLINE bool all_finite() const {
    return hn::AllTrue(I32(), hn::Lt(top, hn::Set(I32(), 0x7F800000)));
  }
};

// formats/quantize.h's scale_from_amax for BF16 scales.
HWY_INLINE VF group_scale(VF amax, float inv_target) {
  const VF least = set(0x1p-100f), largest = set(largest_group_scale(inv_target));
  const VF wide = hn::Min(hn::Max(hn::Mul(amax, set(inv_target)), least), largest);
  return hn::IfThenElse(hn::Eq(amax, zero()), set(1.0f), widen_bf16(narrow_bf16(wide)));
}

}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#endif  // OCTET_CPU_QUANTIZE_INL_H_
