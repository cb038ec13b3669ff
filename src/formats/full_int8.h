// INT8 with all its codes, -128 to 127, as programs that run static INT8 models saturate inputs.
// Elsewhere INT8 is symmetric (formats/encode.h), and amax / 127 as a scale never meets -128.
#pragma once

#include "formats/encode.h"

namespace octet {

// Quantizers that map an input's amax to 127 and keep all codes have this in the place of a target.
inline constexpr double kFullInt8Target = 128;

// Ties to even: -127.5 is -128. NaN is 0.
inline uint32_t encode_full_int8(float x) {
  return x <= -127.5f ? 0x80u : encode<Dtype::int8>(x);
}

}  // namespace octet
