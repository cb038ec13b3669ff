// The choice of a group's exponent on the device: the limits of math/range.h as tables of integers.
#pragma once

#include "math/expansion.h"

namespace octet::cuda {

// The limits of choose_k16 as one integer each: exponent << 23 | fraction, in the order of values.
struct RangeKeys {
  uint32_t limit[kMaxK16];
};
template <Dtype D, Moment M>
constexpr RangeKeys make_range_keys() {
  RangeKeys keys{};
  for (int j = 0; j < kMaxK16; ++j) {
    const Range& limit = kExpansion<D, M>.thresholds.limit[j];
    keys.limit[j] =
        (static_cast<uint32_t>(limit.exponent) << 23) | (bits_of(limit.significand) & 0x007FFFFFu);
  }
  return keys;
}
template <Dtype D, Moment M>
__device__ const RangeKeys kRangeKeys = make_range_keys<D, M>();

// log2 of a range or a limit, within 0.01.
__device__ __forceinline__ float rough_log2_of_key(uint32_t key) {
  const float f = __uint_as_float((key & 0x007FFFFFu) | 0x3F800000u) - 1.0f;
  return static_cast<float>(key >> 23) + f * (1.3437f - 0.3437f * f);
}

// The largest j with key <= limit[j - 1], at least 1. The limits alone decide; the nearer the guess
// the sooner.
__device__ __forceinline__ int choose_k16(uint32_t key, float guess, const uint32_t* limit) {
  int k16 = guess < kMaxK16 ? max(static_cast<int>(guess), 1) : kMaxK16;
  while (k16 > 1 && key > limit[k16 - 1]) --k16;
  while (k16 < kMaxK16 && key <= limit[k16]) ++k16;
  return k16;
}

__device__ __forceinline__ uint32_t range_key(const Range& range) {
  return (static_cast<uint32_t>(range.exponent) << 23) | (bits_of(range.significand) & 0x007FFFFFu);
}

}  // namespace octet::cuda
