// Bit patterns of f32 and exact powers of two. Host and device, constant expressions.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace octet {

OCTET_HOST_DEVICE constexpr uint32_t bits_of(float value) {
  return __builtin_bit_cast(uint32_t, value);
}
OCTET_HOST_DEVICE constexpr float float_of(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

inline constexpr uint32_t kF32Magnitude = 0x7FFFFFFFu;
inline constexpr uint32_t kF32Inf = 0x7F800000u;
inline constexpr uint32_t kF32Nan = 0x7FC00000u;

OCTET_HOST_DEVICE constexpr bool is_nan(float x) {
  return (bits_of(x) & kF32Magnitude) > kF32Inf;
}
OCTET_HOST_DEVICE constexpr bool is_finite(float x) {
  return (bits_of(x) & kF32Magnitude) < kF32Inf;
}

// 2^exponent for exponent in [-149, 127].
OCTET_HOST_DEVICE constexpr float power_of_two(int exponent) {
  return exponent >= -126 ? float_of(static_cast<uint32_t>(exponent + 127) << 23)
                          : float_of(1u << (exponent + 149));
}

// |x| = significand * 2^(exponent - 23) with bit 23 of the significand set, subnormals included; x
// finite, not zero.
struct Unpacked {
  int exponent;
  uint32_t significand;
};

OCTET_HOST_DEVICE constexpr Unpacked unpack(float x) {
  const uint32_t magnitude = bits_of(x) & kF32Magnitude;
  if (magnitude >= 0x00800000u) {
    return {static_cast<int>(magnitude >> 23) - 127, (magnitude & 0x007FFFFFu) | 0x00800000u};
  }
  Unpacked result{-126, magnitude};
  while (result.significand < 0x00800000u) {
    result.significand <<= 1;
    --result.exponent;
  }
  return result;
}

}  // namespace octet
