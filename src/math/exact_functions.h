// Elementary functions with the same bits on every machine: f32 and double additions, products and
// fused products and sums in a written order, without a maths library (contraction is off in every
// build), and of the hardware's approximations only those whose results are on record (math/ex2.h).
// Fused where the source says so. For kernels of a card that memory keeps waiting, and for the
// reference that has their bits (backends/cpu/reference/card.h). Host and device; the results below
// are f32's, to nearest where nothing else is said. log2 and 2^x of doubles: math/powers.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.h"
#include "formats/bits.h"
#include "math/ex2.h"
#include "math/powers.h"

namespace octet {

namespace detail {

// e^x = 2^s e^r with s = x log2(e) to the nearest multiple of 2^-10 and r = x - s ln 2, where
// |r| < 2^-11.5 and e^r = 1 + r within 2^-24; the hardware's 2^s is exp's own rounding.
OCTET_HOST_DEVICE inline float exp_of(float x) {
  constexpr float kLog2E = 0x1.715476p+0f, kLn2 = 0x1.62e43p-1f;
  constexpr float kThousandths = 0x1.8p13f;  // behind it lie multiples of 2^-10
  const float s = fmaf(x, kLog2E, kThousandths) - kThousandths;
  const float power = ex2_of_card(s);
  return fmaf(power, fmaf(s, -kLn2, x), power);
}

}  // namespace detail

// e^x for x up to 87, with a relative error below 2^-22 where |x| <= 16 and below 2^-21 elsewhere;
// 0 below -87.4, 1 at 0, NaN of NaN.
OCTET_HOST_DEVICE inline float exp_exact(float x) {
  constexpr float kMin = -88.0f;  // its power is 0
#ifdef __CUDA_ARCH__
  float clamped;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(clamped) : "f"(x), "f"(kMin));
  return detail::exp_of(clamped);
#else
  return detail::exp_of(x < kMin ? kMin : x);
#endif
}

// 1 / x to nearest, for x from 1 to 2^126; 0 beyond.
OCTET_HOST_DEVICE inline float inverse_exact(float x) {
#ifdef __CUDA_ARCH__
  // One step of Newton's of an approximation within one unit of the last place, fused, is the
  // nearest (Markstein 1990): what __frcp_rn does, without its branch for other x.
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return fmaf(y, fmaf(-x, y, 1.0f), y);
#else
  return x > 0x1p126f ? 0.0f : 1.0f / x;
#endif
}

// 1 / (1 + e^-x), with a relative error below 2^-21; 0 below -87.4.
OCTET_HOST_DEVICE inline float logistic_exact(float x) {
  // Of NaN a number: factors of NaN make NaN of it. The inverse of 1 + e^88 is 0.
  return inverse_exact(1.0f + detail::exp_of(fminf(fmaxf(-x, -88.0f), 88.0f)));
}

// ln x of a positive normal number; of 0 it is -Inf, of Inf and NaN themselves.
OCTET_HOST_DEVICE inline float log_exact(float x) {
  if (!(x > 0 && is_finite(x))) return x == 0 ? float_of(kF32Inf | 0x80000000u) : x;
  return static_cast<float>(log2_exact(static_cast<double>(x)) * detail::kLn2);
}

struct SineCosine {
  float sine, cosine;
};
// Sine and cosine of an angle below 2^31, rounded from doubles whose error is about 2^-53:
// angle = n pi / 2 + r, |r| <= pi / 4, and the series of both.
OCTET_HOST_DEVICE inline SineCosine sine_cosine_exact(double angle) {
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kHalfPi = 0x1.921fb54442d18p+0, kRest = 0x1.1a62633145c07p-54;
  constexpr double kWhole = 0x1.8p52;
  constexpr double kSine[] = {
      -1.0 / 6,        1.0 / 120,          -1.0 / 5040,           1.0 / 362880,
      -1.0 / 39916800, 1.0 / 6227020800.0, -1.0 / 1307674368000.0};
  constexpr double kCosine[] = {
      -1.0 / 2,       1.0 / 24,        -1.0 / 720,           1.0 / 40320,
      -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200.0, 1.0 / 20922789888000.0};
  const double shifted = fma(angle, kTwoOverPi, kWhole), n = shifted - kWhole;
  const double r = fma(-n, kRest, fma(-n, kHalfPi, angle)), r2 = r * r;
  double s = kSine[6], c = kCosine[7];
  for (int i = 5; i >= 0; --i) s = fma(s, r2, kSine[i]);
  for (int i = 6; i >= 0; --i) c = fma(c, r2, kCosine[i]);
  const double sine = fma(r * r2, s, r), cosine = fma(r2, c, 1.0);
  const auto quarter = static_cast<uint32_t>(__builtin_bit_cast(uint64_t, shifted)) & 3;
  const double first = quarter % 2 == 0 ? sine : cosine, second = quarter % 2 == 0 ? cosine : sine;
  return {static_cast<float>(quarter >= 2 ? -first : first),
          static_cast<float>(quarter == 1 || quarter == 2 ? -second : second)};
}

}  // namespace octet
