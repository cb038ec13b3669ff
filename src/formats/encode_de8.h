// DE8's encoder: nearest entry of the codebook by binary search, ties to the larger one. Host and
// device.
#pragma once

#include <cstdint>

#include "formats/decode.h"
#include "formats/rounding.h"

namespace octet {
namespace detail {

// first[i]: the least f32 that is nearer to entry i + 1 than to entry i, or halfway.
struct De8Thresholds {
  float first[255];
};

OCTET_HOST_DEVICE constexpr De8Thresholds make_de8_thresholds(bool is_signed) {
  De8Thresholds result{};
  for (uint32_t code = 0; code < 255; ++code) {
    const double lo = decode_de8(is_signed, code), hi = decode_de8(is_signed, code + 1);
    const double middle = (lo + hi) / 2;  // exact: neighbours are close in magnitude
    float first = static_cast<float>(middle);
    if (first < middle) first = float_of(first > 0 ? bits_of(first) + 1 : bits_of(first) - 1);
    result.first[code] = first;
  }
  return result;
}

template <Dtype D>
OCTET_HOST_DEVICE inline uint32_t encode_de8(float x) {
  constexpr FormatRow kRow = kFormatRow<D>;
  static constexpr De8Thresholds kThresholds = make_de8_thresholds(kRow.is_signed);
  if (is_nan(x)) return kRow.zero_code;
  uint32_t code = 0;
  for (uint32_t step = 128; step != 0; step >>= 1) {
    if (x >= kThresholds.first[code + step - 1]) code += step;
  }
  return code;
}

}  // namespace detail
}  // namespace octet
