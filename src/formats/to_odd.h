// From f64 to a 16-bit format by one rounding.
#pragma once

#include <cmath>

#include "formats/bf16.h"

namespace octet {

// To f32 by rounding to odd: a second rounding, to a narrower format, then rounds as if there had
// been none before.
inline float to_odd(double x) {
  auto f = static_cast<float>(x);
  if (std::isnan(x) || static_cast<double>(f) == x) return f;
  if (std::fabs(static_cast<double>(f)) > std::fabs(x)) f = std::nextafterf(f, 0.0f);
  return float_of(bits_of(f) | 1u);
}

}  // namespace octet
