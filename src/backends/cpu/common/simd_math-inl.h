// exp, tanh, erf and the logistic function in f32, compiled once for each Highway target. NaN gives
// NaN.
#if defined(OCTET_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTET_CPU_SIMD_MATH_INL_H_
#undef OCTET_CPU_SIMD_MATH_INL_H_
#else
#define OCTET_CPU_SIMD_MATH_INL_H_
#endif

#include "backends/cpu/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {

// 2^n for integral n in [-126, 127].
HWY_INLINE VF power_of_two(hn::Vec<I32> n) {
  return hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(I32(), 127))));
}

// e^r - 1 - r over r^2 for |r| <= ln(2)/2, fitted at Chebyshev points (absolute error 7e-8).
constexpr float kExpTail[] = {0.5f, 1.666657667e-1f, 4.166655421e-2f, 8.363232884e-3f,
                              1.392625083e-3f};
HWY_INLINE VF exp_tail(VF r) {
  VF q = set(kExpTail[4]);
  HWY_UNROLL(4) for (int i = 3; i >= 0; --i) q = hn::MulAdd(q, r, set(kExpTail[i]));
  return q;
}

// x = n ln 2 + r. NaN gives a NaN r.
HWY_INLINE VF split_exponent(VF x, VF* n) {
  *n = hn::Round(hn::Mul(x, set(1.44269504f)));
  const VF r = hn::NegMulAdd(*n, set(0.693145751953125f), x);
  return hn::NegMulAdd(*n, set(1.42860682030941723e-6f), r);
}

// min(max(x, least), most); NaN stays NaN.
HWY_INLINE VF limited(VF x, float least, float most) {
#if HWY_TARGET <= HWY_AVX3
  // If one of two operands is NaN, the second is the result.
  return VF{_mm512_min_ps(set(most).raw, _mm512_max_ps(set(least).raw, x.raw))};
#else
  const VF inside = hn::Min(hn::Max(x, set(least)), set(most));
  return hn::IfThenElse(hn::IsNaN(x), x, inside);
#endif
}

// q 2^n for q in [1/2, 2] or NaN and an integral n in [-152, 129], or NaN where q is; rounded once.
HWY_INLINE VF times_power(VF q, VF n) {
#if HWY_TARGET <= HWY_AVX3
  return VF{_mm512_scalef_ps(q.raw, n.raw)};
#else
  const auto whole = hn::ConvertTo(I32(), hn::IfThenZeroElse(hn::IsNaN(n), n));
  const auto half = hn::ShiftRight<1>(whole);  // two factors: neither leaves the normal range
  return hn::Mul(hn::Mul(q, power_of_two(half)), power_of_two(hn::Sub(whole, half)));
#endif
}

// x = e^x for N vectors side by side: one alone would wait for its own results most of the time.
// Error at most 1 ulp; subnormal results, overflow to Inf, and NaN included.
template <int N>
HWY_INLINE void exp_each(VF (&x)[N]) {
  VF n[N], r[N], q[N];
  HWY_UNROLL(4) for (int i = 0; i < N; ++i) {
    r[i] = split_exponent(limited(x[i], -105.0f, 89.0f), &n[i]);
  }
  HWY_UNROLL(4) for (int i = 0; i < N; ++i) {
    q[i] = hn::MulAdd(set(kExpTail[4]), r[i], set(kExpTail[3]));
  }
  HWY_UNROLL(4) for (int i = 0; i < N; ++i) q[i] = hn::MulAdd(q[i], r[i], set(kExpTail[2]));
  HWY_UNROLL(4) for (int i = 0; i < N; ++i) q[i] = hn::MulAdd(q[i], r[i], set(kExpTail[1]));
  HWY_UNROLL(4) for (int i = 0; i < N; ++i) q[i] = hn::MulAdd(q[i], r[i], set(kExpTail[0]));
  HWY_UNROLL(4) for (int i = 0; i < N; ++i) {
    q[i] = hn::Add(set(1.0f), hn::MulAdd(hn::Mul(r[i], r[i]), q[i], r[i]));
  }
  HWY_UNROLL(4) for (int i = 0; i < N; ++i) x[i] = times_power(q[i], n[i]);
}
HWY_INLINE VF exp_f32(VF x) {
  VF one[1] = {x};
  exp_each(one);
  return one[0];
}

// e^x for x <= 0 (the softmax step): results below 2^-125 become 0; NaN gives NaN.
HWY_INLINE VF exp_nonpositive(VF x) {
  VF n;
  const VF r = split_exponent(hn::IfThenElse(hn::Lt(x, set(-87.0f)), set(-87.0f), x), &n);
  const VF p = hn::Add(set(1.0f), hn::MulAdd(hn::Mul(r, r), exp_tail(r), r));
  const VF y = hn::Mul(p, power_of_two(hn::ConvertTo(I32(), n)));
  const VF kept = hn::IfThenZeroElse(hn::Lt(x, set(-86.5f)), y);
  return hn::IfThenElse(hn::IsNaN(x), x, kept);
}

// tanh(x), error at most 2 ulp. Below 0.63 an odd polynomial, above 1 - 2/(e^2|x| + 1).
HWY_INLINE VF tanh_f32(VF x) {
  const VF t = hn::Abs(x);
  const VF s = hn::Mul(x, x);
  VF p = set(2.269501684e-3f);
  p = hn::MulAdd(p, s, set(-8.323187058e-3f));
  p = hn::MulAdd(p, s, set(2.176250291e-2f));
  p = hn::MulAdd(p, s, set(-5.395846163e-2f));
  p = hn::MulAdd(p, s, set(1.333330015e-1f));
  p = hn::MulAdd(p, s, set(-3.333333315e-1f));
  const VF small = hn::MulAdd(hn::Mul(x, s), p, x);
  const VF e = exp_f32(hn::Add(t, t));
  const VF large = hn::Sub(set(1.0f), hn::Div(set(2.0f), hn::Add(e, set(1.0f))));
  return hn::IfThenElse(hn::Lt(t, set(0.63f)), small, hn::CopySignToAbs(large, x));
}

// erf(x), error at most 2 ulp. Below 1 an odd polynomial, above 1 - exp(-g(|x|)) with g = -log
// erfc; both fitted.
HWY_INLINE VF erf_f32(VF x) {
  const VF t = hn::Abs(x);
  const VF s = hn::Mul(x, x);
  VF p = set(7.875875063e-5f);
  p = hn::MulAdd(p, s, set(-8.016864287e-4f));
  p = hn::MulAdd(p, s, set(5.189087423e-3f));
  p = hn::MulAdd(p, s, set(-2.685421201e-2f));
  p = hn::MulAdd(p, s, set(1.128359472e-1f));
  p = hn::MulAdd(p, s, set(-3.761262667e-1f));
  p = hn::MulAdd(p, s, set(1.283791658e-1f));
  const VF small = hn::MulAdd(p, x, x);
  const VF u = hn::IfThenElse(hn::IsNaN(x), x, hn::Min(t, set(4.0f)));
  VF g = set(-1.637151415e-6f);
  g = hn::MulAdd(g, u, set(4.605804269e-5f));
  g = hn::MulAdd(g, u, set(-5.968056257e-4f));
  g = hn::MulAdd(g, u, set(4.759596293e-3f));
  g = hn::MulAdd(g, u, set(-2.642113601e-2f));
  g = hn::MulAdd(g, u, set(1.100801829e-1f));
  g = hn::MulAdd(g, u, set(6.318260516e-1f));
  g = hn::MulAdd(g, u, set(1.130233435f));
  g = hn::MulAdd(g, u, set(-3.201380497e-4f));
  const VF large = hn::Sub(set(1.0f), exp_f32(hn::Neg(g)));
  return hn::IfThenElse(hn::Lt(t, set(1.0f)), small, hn::CopySignToAbs(large, x));
}

// x / (1 + e^-x) for N vectors side by side.
template <int N>
HWY_INLINE void silu_each(VF (&x)[N]) {
  VF e[N];
  HWY_UNROLL(4) for (int i = 0; i < N; ++i) e[i] = hn::Neg(x[i]);
  exp_each(e);
  HWY_UNROLL(4) for (int i = 0; i < N; ++i) x[i] = hn::Div(x[i], hn::Add(set(1.0f), e[i]));
}
HWY_INLINE VF silu_f32(VF x) {
  VF one[1] = {x};
  silu_each(one);
  return one[0];
}

struct SiluLanes {
  VF value, slope;
};
// silu' = s (1 + x (1 - s)) = s + value (1 - s), s the logistic function
template <int N>
HWY_INLINE void silu_with_slope_each(const VF (&x)[N], SiluLanes (&y)[N]) {
  VF s[N];
  HWY_UNROLL(4) for (int i = 0; i < N; ++i) s[i] = hn::Neg(x[i]);
  exp_each(s);
  HWY_UNROLL(4) for (int i = 0; i < N; ++i) {
    s[i] = hn::Div(set(1.0f), hn::Add(set(1.0f), s[i]));
    y[i].value = hn::Mul(x[i], s[i]);
    y[i].slope = hn::MulAdd(y[i].value, hn::Sub(set(1.0f), s[i]), s[i]);
  }
}
HWY_INLINE SiluLanes silu_with_slope(VF x) {
  const VF one[1] = {x};
  SiluLanes y[1];
  silu_with_slope_each(one, y);
  return y[0];
}

}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#endif  // OCTET_CPU_SIMD_MATH_INL_H_
