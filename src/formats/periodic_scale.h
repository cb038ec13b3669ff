// A scale that stays until it is measured anew: a power of two. Source: Luo et al. 2024 (HiFloat8).
// Host and device.
#pragma once

#include "formats/bits.h"

namespace octet {

inline constexpr float kMinPeriodicScale = 0x1p-100f;

// The smallest power of two p with amax / p <= target, at least 2^-100; 1 for amax 0. Exact.
OCTET_HOST_DEVICE constexpr float power_scale(float amax, float target) {
  if (amax == 0.0f) return 1.0f;
  const Unpacked a = unpack(amax), t = unpack(target);
  const int exponent = a.exponent - t.exponent + (a.significand > t.significand ? 1 : 0);
  return power_of_two(exponent < -100 ? -100 : exponent > 127 ? 127 : exponent);
}

// A tensor of zeros tells nothing: the scale of before stays.
OCTET_HOST_DEVICE constexpr float periodic_scale(float before, float amax, float target) {
  return amax == 0.0f ? before : power_scale(amax, target);
}

}  // namespace octet
