// The power of two nearest to |x| on a logarithmic axis, a tie down: 2^ceil(log2|x| - 1/2). 1 where
// there is none: 0, an infinity, NaN. Exact; results are normal numbers.
#pragma once

#include <cmath>

namespace octet {

inline float nearest_power_of_two(float x) {
  constexpr float kHalfRoot = 0.70710678f;  // mantissas up to 2^-1/2 go down
  if (!(std::fabs(x) > 0) || !std::isfinite(x)) return 1;
  int exponent = 0;
  const float mantissa = std::frexp(std::fabs(x), &exponent);  // in [1/2, 1)
  if (mantissa <= kHalfRoot) --exponent;
  return std::ldexp(1.0f, exponent < -126 ? -126 : exponent > 127 ? 127 : exponent);
}

}  // namespace octet
