// Common part of every encoder: its options, and the decision to carry to the next point of the
// grid. Host and device.
#pragma once

#include <cstdint>

#include "formats/table.h"

namespace octet {

struct EncodeOptions {
  bool saturate = true;       // overflow and Inf give the largest finite value, not overflow_code
  bool nan_to_zero = false;   // NaN gives +0 instead of the canonical NaN
  uint32_t random_bits = 0;   // for sr
  Dtype source = Dtype::f32;  // for hr and hrv: f32, bf16 or fp16, the type x was read from
  // Inf gives overflow_code (NaN of E4M3, Inf of others) where finite overflow saturates: the cast
  // of Micikevicius et al. 2022.
  bool keeps_inf = false;
};

namespace detail {

// Remainder of a value that is cut to the grid: F = rest / 2^shift; lo's code is odd or
// even.
struct Remainder {
  uint64_t rest;
  int shift;  // 1..60
  bool odd;
};

// A deeper shift means F < 2^-34, which carries in no mode and fits no wider.
inline constexpr int kMaxShift = 60;

OCTET_HOST_DEVICE constexpr bool carries(Rounding rounding, Remainder r, uint32_t random_bits) {
  const uint64_t half = uint64_t{1} << (r.shift - 1);
  switch (rounding) {
    case Rounding::rne:
      return r.rest > half || (r.rest == half && r.odd);
    case Rounding::ta:
      return r.rest >= half;
    case Rounding::sr: {
      const uint64_t part = r.shift <= 32 ? r.rest << (32 - r.shift) : r.rest >> (r.shift - 32);
      return ((part + random_bits) >> 32) != 0;
    }
    default:
      return false;
  }
}

template <Dtype D>
OCTET_HOST_DEVICE constexpr uint32_t encode_nan(const EncodeOptions& options) {
  constexpr FormatRow kRow = kFormatRow<D>;
  return options.nan_to_zero ? kRow.zero_code : kRow.nan_code;
}

}  // namespace detail
}  // namespace octet
