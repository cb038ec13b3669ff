// Division by one number again and again, compiled once for each Highway target.
#if defined(OCTET_CPU_DIVIDER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTET_CPU_DIVIDER_INL_H_
#undef OCTET_CPU_DIVIDER_INL_H_
#else
#define OCTET_CPU_DIVIDER_INL_H_
#endif

#include "backends/cpu/common/simd-inl.h"
#include "formats/bits.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {

// x / divisor, bit for bit, for the same divisor again and again. The divider is the bottleneck of
// an update; with the divisor's correctly rounded inverse y, two corrections of x y by the exact
// remainder give the correctly rounded quotient (Markstein 1990), as long as nothing underflows.
class Divider {
 public:
  HWY_INLINE explicit Divider(float divisor)
      : divisor_(set(divisor)), inverse_(set(1.0f / divisor)) {}
  // True if multiply() may hold.
  static constexpr bool is_plain(float divisor) { return divisor >= 0x1p-25f && divisor <= 1.0f; }

#if HWY_TARGET <= HWY_AVX3
  // True if it holds for all lanes of both; zeros and tiny numbers are left to divide().
  static HWY_INLINE bool all_hold(VF x, VF y) {
    const auto inside = [](VF v) HWY_ATTR {
      const auto magnitude =
          hn::And(hn::BitCast(I32(), v), hn::Set(I32(), static_cast<int32_t>(kF32Magnitude)));
      return hn::Sub(magnitude, hn::Set(I32(), kMin));
    };
    const __m512i span = _mm512_set1_epi32(kMax - kMin);
    const __mmask16 first = _mm512_cmplt_epu32_mask(inside(x).raw, span);
    return _mm512_mask_cmplt_epu32_mask(first, inside(y).raw, span) == 0xFFFF;
  }
  HWY_INLINE VF multiply(VF x) const {
    VF q = hn::Mul(x, inverse_);
    q = hn::MulAdd(hn::NegMulAdd(q, divisor_, x), inverse_, q);
    return hn::MulAdd(hn::NegMulAdd(q, divisor_, x), inverse_, q);
  }
#else
  static HWY_INLINE bool all_hold(VF, VF) {
    return false;
  }
  HWY_INLINE VF multiply(VF x) const {
    return divide(x);
  }
#endif
  HWY_INLINE VF divide(VF x) const {
    return hn::Div(x, divisor_);
  }

 private:
  static constexpr int32_t kMin = bits_of(0x1p-90f), kMax = bits_of(0x1p90f);
  VF divisor_, inverse_;
};

}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#endif  // OCTET_CPU_DIVIDER_INL_H_
