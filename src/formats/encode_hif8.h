// HiF8's encoder: the width of the fraction shrinks with the magnitude of the exponent; below 2^-15
// the grid is powers of two, whose codes are even for odd exponents (rne). Source: Luo et al. 2024.
// Host and device.
#pragma once

#include <cstdint>

#include "formats/decode.h"
#include "formats/rounding.h"

namespace octet {
namespace detail {

// HiF8's simplified stochastic rounding: leading bits of the discarded part against low bits of the
// source itself.
OCTET_HOST_DEVICE constexpr bool hif8_simplified_carries(float x, Remainder r, Dtype source) {
  if (source == Dtype::f32) {
    const uint64_t part = r.shift >= 14 ? r.rest >> (r.shift - 14) : r.rest << (14 - r.shift);
    return part >= (bits_of(x) & 0x3FFFu);
  }
  // The least significant bit of a 16-bit source, seen in the 24-bit significand; it moves up in
  // FP16's subnormals.
  const Unpacked u = unpack(x);
  const int lsb = source == Dtype::bf16 ? 16 : u.exponent >= -14 ? 13 : -1 - u.exponent;
  const uint64_t threshold = (((u.significand >> lsb) & 1u) << 1) | 1u;
  return (r.rest >> (r.shift - 2)) >= threshold;
}

OCTET_HOST_DEVICE constexpr bool hif8_carries(float x, Rounding rounding, Remainder r,
                                              const EncodeOptions& options) {
  if (rounding != Rounding::hr && rounding != Rounding::hrv) {
    return carries(rounding, r, options.random_bits);
  }
  const int exponent = unpack(x).exponent;
  if (exponent > -4 && exponent < 4) return carries(Rounding::ta, r, 0);
  if (exponent < -23) return false;
  if (rounding == Rounding::hr && r.rest == 0) return false;
  return hif8_simplified_carries(x, r, options.source);
}

// The positive code of 2^exponent * (1 + fraction / 2^w), 1 <= |x| codes only: exponent in [-22,
// 15].
OCTET_HOST_DEVICE constexpr uint32_t hif8_code(int exponent, uint32_t fraction) {
  if (exponent < -15) return static_cast<uint32_t>(exponent + 23);
  if (exponent == 0) return 0x08u | fraction;
  const uint32_t magnitude = static_cast<uint32_t>(exponent < 0 ? -exponent : exponent);
  const uint32_t negative = exponent < 0 ? 1u : 0u;
  if (magnitude == 1) return 0x10u | (negative << 3) | fraction;
  if (magnitude < 4) return 0x20u | (negative << 4) | ((magnitude - 2) << 3) | fraction;
  if (magnitude < 8) return 0x40u | (negative << 4) | ((magnitude - 4) << 2) | fraction;
  return 0x60u | (negative << 4) | ((magnitude - 8) << 1) | fraction;
}

OCTET_HOST_DEVICE constexpr uint32_t encode_hif8(float x, Rounding rounding,
                                                 const EncodeOptions& options) {
  constexpr FormatRow kRow = kFormatRow<Dtype::hif8>;
  if (is_nan(x)) return encode_nan<Dtype::hif8>(options);
  const uint32_t sign = (bits_of(x) >> 31) << 7;
  const uint32_t limit = sign | (options.saturate ? kRow.max_code : kRow.overflow_code);
  if ((bits_of(x) & kF32Magnitude) == 0) return kRow.zero_code;
  const Unpacked u = unpack(x);
  const uint32_t finite_limit = rounding == Rounding::rtz ? sign | kRow.max_code : limit;
  if (!is_finite(x)) return options.keeps_inf ? sign | kRow.overflow_code : limit;
  if (u.exponent > 15) return finite_limit;
  if (u.exponent < -22) {  // between 0 and 2^-22
    const int wanted = 1 - u.exponent;
    const Remainder r{u.significand, wanted < kMaxShift ? wanted : kMaxShift, false};
    return hif8_carries(x, rounding, r, options) ? sign | kRow.min_code : kRow.zero_code;
  }
  const int width = hif8_fraction_bits(u.exponent);
  const int shift = 23 - width;
  const uint32_t kept = u.significand >> shift;
  const bool is_odd = ((width > 0 ? kept : static_cast<uint32_t>(u.exponent + 23)) & 1u) != 0;
  const Remainder r{u.significand - (kept << shift), shift, is_odd};
  uint32_t fraction = kept - (1u << width);
  int exponent = u.exponent;
  if (hif8_carries(x, rounding, r, options) && ++fraction == 1u << width) {
    fraction = 0;
    ++exponent;
  }
  if (exponent > 15 || (exponent == 15 && fraction != 0)) return finite_limit;
  return sign | hif8_code(exponent, fraction);
}

}  // namespace detail
}  // namespace octet
