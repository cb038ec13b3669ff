// Values to codes with one rounding, exactly as docs/numerics.md says: |x| lies between two
// neighbours lo <= |x| < hi of the format's grid, F = (|x| - lo) / (hi - lo), and the rounding
// decides from F whether to carry to hi. The grid goes on for one point past the largest finite
// value; a result at or beyond that point is an overflow (rtz: no finite value overflows, it gives
// the largest). Host and device.
#pragma once

#include <cstdint>

#include "formats/bits.h"
#include "formats/decode.h"
#include "formats/encode_de8.h"
#include "formats/encode_hif8.h"
#include "formats/rounding.h"

namespace octet {

namespace detail {

template <Dtype D>
OCTET_HOST_DEVICE constexpr uint32_t encode_ieee(float x, Rounding rounding,
                                                 const EncodeOptions& options) {
  constexpr FormatRow kRow = kFormatRow<D>;
  constexpr int kMinExponent = 1 - kRow.bias;
  if (is_nan(x)) return encode_nan<D>(options);
  const uint32_t sign = (bits_of(x) >> 31) << (kRow.exponent_bits + kRow.fraction_bits);
  const uint32_t limit = options.saturate ? kRow.max_code : kRow.overflow_code;
  if (!is_finite(x)) return sign | (options.keeps_inf ? kRow.overflow_code : limit);
  if ((bits_of(x) & kF32Magnitude) == 0) return sign;
  const Unpacked u = unpack(x);
  const int deep = u.exponent < kMinExponent ? kMinExponent - u.exponent : 0;
  const int wanted = 23 - kRow.fraction_bits + deep;
  const int shift = wanted < kMaxShift ? wanted : kMaxShift;
  const uint64_t kept = static_cast<uint64_t>(u.significand) >> shift;
  const Remainder remainder{u.significand - (kept << shift), shift, (kept & 1) != 0};
  const uint32_t base =
      deep > 0 ? 0u : static_cast<uint32_t>(u.exponent - kMinExponent) << kRow.fraction_bits;
  const uint32_t carry = carries(rounding, remainder, options.random_bits) ? 1u : 0u;
  const uint32_t code = base + static_cast<uint32_t>(kept) + carry;
  if (code <= kRow.max_code) return sign | code;
  return sign | (rounding == Rounding::rtz ? kRow.max_code : limit);
}

// Symmetric: from -max_code to max_code.
template <Dtype D>
OCTET_HOST_DEVICE constexpr uint32_t encode_integer(float x, Rounding rounding,
                                                    const EncodeOptions& options) {
  constexpr FormatRow kRow = kFormatRow<D>;
  if (is_nan(x)) return encode_nan<D>(options);
  uint32_t magnitude = kRow.max_code;
  if ((bits_of(x) & kF32Magnitude) == 0) {
    magnitude = 0;
  } else if (const Unpacked u = unpack(x); u.exponent < kRow.fraction_bits && is_finite(x)) {
    const int shift = 23 - u.exponent < kMaxShift ? 23 - u.exponent : kMaxShift;
    const uint64_t kept = static_cast<uint64_t>(u.significand) >> shift;
    const Remainder remainder{u.significand - (kept << shift), shift, (kept & 1) != 0};
    const bool carry = carries(rounding, remainder, options.random_bits);
    const uint32_t rounded = static_cast<uint32_t>(kept) + (carry ? 1u : 0u);
    magnitude = rounded < kRow.max_code ? rounded : kRow.max_code;
  }
  return (bits_of(x) >> 31) != 0 ? (0x100u - magnitude) & 0xFFu : magnitude;
}

// A scale's power: of |x|, since a scale has no sign.
OCTET_HOST_DEVICE constexpr uint32_t encode_e8m0(float x, Rounding rounding,
                                                 const EncodeOptions& options) {
  constexpr FormatRow kRow = kFormatRow<Dtype::e8m0>;
  if (is_nan(x)) return encode_nan<Dtype::e8m0>(options);
  if (x == 0.0f) return kRow.zero_code;
  if (!is_finite(x)) return kRow.max_code;
  const Unpacked u = unpack(x);
  const bool exact = u.significand == 0x00800000u;
  const int code = u.exponent + kRow.bias + (rounding == Rounding::ceil && !exact ? 1 : 0);
  return static_cast<uint32_t>(code < 0 ? 0 : code > kRow.max_code ? kRow.max_code : code);
}

}  // namespace detail

// The code of x. `rounding` is one of rounding_supported(D, ...); another one cuts toward zero.
template <Dtype D>
OCTET_HOST_DEVICE inline uint32_t encode(float x, Rounding rounding = Rounding::near,
                                         const EncodeOptions& options = {}) {
  constexpr FormatRow kRow = kFormatRow<D>;
  const Rounding mode = rounding == Rounding::near ? kRow.nearest : rounding;
  if constexpr (kRow.rule == DecodeRule::ieee) {
    return detail::encode_ieee<D>(x, mode, options);
  } else if constexpr (kRow.rule == DecodeRule::hif8) {
    return detail::encode_hif8(x, mode, options);
  } else if constexpr (kRow.rule == DecodeRule::power) {
    return detail::encode_e8m0(x, mode, options);
  } else if constexpr (kRow.rule == DecodeRule::integer) {
    return detail::encode_integer<D>(x, mode, options);
  } else {
    return detail::encode_de8<D>(x);
  }
}

}  // namespace octet
