// Master weights in four bytes or two: the exact split of an f32 into a BF16 weight and a 16-bit
// remainder, and the stochastic rounding to BF16 and FP16. Host and device, constant expressions.
#pragma once

#include <cstdint>

#include "formats/bf16.h"
#include "formats/bits.h"

namespace octet {

// (hi << 16) + lo are the bits of the master, exactly. hi is the master rounded half up in the bit
// pattern, so lo always fits. A NaN keeps its upper half, made quiet, with lo = 0.
struct MasterBits {
  uint16_t hi;
  int16_t lo;
};

OCTET_HOST_DEVICE constexpr MasterBits split_master(float master) {
  const uint32_t bits = bits_of(master);
  if (is_nan(master)) return {static_cast<uint16_t>((bits >> 16) | 0x40u), 0};
  const auto hi = static_cast<uint16_t>((bits + 0x8000u) >> 16);
  return {hi, static_cast<int16_t>(static_cast<uint16_t>(bits & 0xFFFFu))};
}

OCTET_HOST_DEVICE constexpr float join_master(MasterBits parts) {
  const auto lo = static_cast<uint32_t>(static_cast<int32_t>(parts.lo));  // sign kept
  return float_of((static_cast<uint32_t>(parts.hi) << 16) + lo);
}

// x in BF16, rounded up in magnitude with the probability that its cut bits say: the 16 upper of
// `random` are added below the last place. Values that BF16 holds never move, Inf stays Inf, NaN is
// the canonical 0x7FFF, a carry beyond the largest finite value gives Inf.
OCTET_HOST_DEVICE constexpr uint16_t stochastic_bf16(float x, uint32_t random) {
  if (is_nan(x)) return 0x7FFF;
  return static_cast<uint16_t>((bits_of(x) + (random >> 16)) >> 16);
}

// x in FP16, rounded likewise: between two neighbours by all 32 bits below 2^-14, by 13 above.
// Overflow and Inf give the largest finite value, NaN the canonical 0x7FFF. The same as
// encode<Dtype::fp16>(x, Rounding::sr).
OCTET_HOST_DEVICE constexpr uint16_t stochastic_fp16(float x, uint32_t random) {
  constexpr uint32_t kMinNormal = 0x38800000u, kLargest = 0x7BFFu;
  const uint32_t magnitude = bits_of(x) & kF32Magnitude;
  const auto sign = static_cast<uint32_t>(bits_of(x) >> 31) << 15;
  if (magnitude > kF32Inf) return 0x7FFF;
  uint32_t code = 0;
  if (magnitude >= kMinNormal) {
    code = ((magnitude + (random >> 19)) >> 13) - (112u << 10);
  } else {
    const float steps = float_of(magnitude) * 0x1p24f;  // of the subnormal numbers
    code = static_cast<uint32_t>(steps);
    const auto part = static_cast<uint32_t>((steps - static_cast<float>(code)) * 0x1p32f);
    code += part + random < part ? 1u : 0u;
  }
  return static_cast<uint16_t>(sign | (code < kLargest ? code : kLargest));
}

// Code of x as store_scaled stores it: keeps_positive takes the smallest number in the place of 0.
OCTET_HOST_DEVICE constexpr uint16_t store_fp16(float x, uint32_t random, bool keeps_positive) {
  const uint16_t code = stochastic_fp16(x, random);
  return code == 0 && keeps_positive && x > 0 ? uint16_t{1} : code;
}

}  // namespace octet
