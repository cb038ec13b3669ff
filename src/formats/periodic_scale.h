// A scale that stays for some steps: a power of two, made anew every `period` steps from the
// largest magnitude since it was made, this step's included. Source: Luo et al. 2024 (HiFloat8).
// Host and device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "formats/bits.h"

namespace octet {

inline constexpr int64_t kScaleMemory = 3;
inline constexpr float kLeastPeriodicScale = 0x1p-100f;

// As kScaleMemory floats. scale 0: none was made of a tensor that is not zero.
struct ScaleMemory {
  float scale = 0, largest = 0, steps = 0;
};
struct PeriodicScaleStep {
  float scale = 1;
  ScaleMemory next;
};

// The smallest power of two p with amax / p <= target, at least 2^-100; 1 for amax 0. Exact.
OCTET_HOST_DEVICE constexpr float power_scale(float amax, float target) {
  if (amax == 0.0f) return 1.0f;
  const Unpacked a = unpack(amax), t = unpack(target);
  const int exponent = a.exponent - t.exponent + (a.significand > t.significand ? 1 : 0);
  return power_of_two(exponent < -100 ? -100 : exponent > 127 ? 127 : exponent);
}

OCTET_HOST_DEVICE constexpr PeriodicScaleStep periodic_scale(const ScaleMemory& memory, float amax,
                                                             float target, int64_t period) {
  const float largest = memory.largest > amax ? memory.largest : amax;
  const bool stays = memory.scale > 0.0f && memory.steps < static_cast<float>(period);
  if (stays) return {memory.scale, {memory.scale, largest, memory.steps + 1.0f}};
  const float scale = power_scale(largest, target);
  return {scale, {largest > 0.0f ? scale : 0.0f, 0.0f, 1.0f}};
}

}  // namespace octet
