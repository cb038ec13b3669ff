// log2 and 2^x with the same bits on every machine: only IEEE double additions, multiplications and
// divisions, in a written order, without a maths library and without fused multiply-add
// (contraction is off in every build). Relative error of exp2_exact and absolute error of
// log2_exact below 2^-50: far inside what an 8-bit code or an f32 result can see. Host and device,
// constant expressions.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/philox.h"

namespace octet {

// Which powers the range expansion uses. `exact` gives equal bits everywhere, `fast` the machine's
// exp2 and log2: then codes agree in at least 99.9 %, the others by one code.
enum class MathMode : uint8_t { fast, exact };

namespace detail {

inline constexpr double kLn2 = 0.693147180559945309417232121458;

OCTET_HOST_DEVICE constexpr double power_of_two_double(int exponent) {  // -1022..1023
  return __builtin_bit_cast(double, static_cast<uint64_t>(exponent + 1023) << 52);
}

}  // namespace detail

// log2(x), x positive and normal as a double. Exactly 0 for x = 1 and exact for powers of two.
// With x = m 2^e, m in [sqrt(1/2), sqrt(2)) and s = (m-1)/(m+1): ln m = 2 (s + s^3/3 + s^5/5 +
// ...), s^2 < 0.0295.
OCTET_HOST_DEVICE constexpr double log2_exact(double x) {
  constexpr double kSeries[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13,
                                1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25};
  constexpr uint64_t kSqrt2Fraction = 0x6A09E667F3BCDull;
  const uint64_t bits = __builtin_bit_cast(uint64_t, x);
  const uint64_t fraction = bits & 0xFFFFFFFFFFFFFull;
  const int up = fraction >= kSqrt2Fraction ? 1 : 0;
  const int exponent = static_cast<int>(bits >> 52) - 1023 + up;
  const double m = __builtin_bit_cast(double, (static_cast<uint64_t>(1023 - up) << 52) | fraction);
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double sum = kSeries[11];
  for (int n = 10; n >= 0; --n) sum = kSeries[n] + s2 * sum;
  return exponent + (2.0 / detail::kLn2) * (s + s * (s2 * sum));
}

// 2^y, y clamped to +-1000. Exactly a power of two for whole y. Taylor series of e^(f ln 2) with
// |f| <= 1/2, 15 terms.
OCTET_HOST_DEVICE constexpr double exp2_exact(double y) {
  constexpr double kSeries[] = {1.0,
                                1.0,
                                1.0 / 2,
                                1.0 / 6,
                                1.0 / 24,
                                1.0 / 120,
                                1.0 / 720,
                                1.0 / 5040,
                                1.0 / 40320,
                                1.0 / 362880,
                                1.0 / 3628800,
                                1.0 / 39916800,
                                1.0 / 479001600,
                                1.0 / 6227020800.0,
                                1.0 / 87178291200.0,
                                1.0 / 1307674368000.0};
  const double clamped = y < -1000.0 ? -1000.0 : y > 1000.0 ? 1000.0 : y;
  const int whole = static_cast<int>(clamped < 0 ? clamped - 0.5 : clamped + 0.5);
  const double t = (clamped - whole) * detail::kLn2;
  double sum = kSeries[15];
  for (int n = 14; n >= 0; --n) sum = kSeries[n] + t * sum;
  return sum * detail::power_of_two_double(whole);
}

}  // namespace octet
