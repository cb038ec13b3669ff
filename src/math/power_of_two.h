// The power of two nearest to |x| on a logarithmic axis, a tie down: 2^ceil(log2|x| - 1/2). 1 where
// there is none: 0, an infinity, NaN. Results are normal numbers. Host and device.
#pragma once

#include <cstdint>

#include "formats/bits.h"

namespace octet {

OCTET_HOST_DEVICE inline float nearest_power_of_two(float x) {
  constexpr uint32_t kInf = 0x7F800000, kMantissa = 0x007FFFFF;
  constexpr uint32_t kRootOfTwo = 0x003504F3;  // the mantissa of sqrt(2), rounded down
  constexpr uint32_t kSmallest = 1, kLargest = 254;
  const uint32_t bits = bits_of(x) & 0x7FFFFFFF;
  if (bits == 0 || bits >= kInf) return 1;
  uint32_t exponent = (bits >> 23) + ((bits & kMantissa) > kRootOfTwo ? 1 : 0);
  exponent = exponent < kSmallest ? kSmallest : exponent > kLargest ? kLargest : exponent;
  return float_of(exponent << 23);
}

}  // namespace octet
