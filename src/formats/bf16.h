// The conversions between f32 and BF16 that machines have. Host and device.
#pragma once

#include <cstdint>

#include "formats/bits.h"

namespace octet {

// f32 to BF16 and back as the machine's own conversions do: nearest even, Inf kept, NaN 0x7FFF.
OCTET_HOST_DEVICE constexpr uint16_t bf16_from_f32(float x) {
  const uint32_t bits = bits_of(x);
  if ((bits & kF32Magnitude) > kF32Inf) return 0x7FFF;
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
OCTET_HOST_DEVICE constexpr float f32_from_bf16(uint16_t code) {
  return float_of(static_cast<uint32_t>(code) << 16);
}

}  // namespace octet
