// Codes to values, exactly: every code of every format is an f32 value. Host and device, constant
// expressions. NaN decodes to the one quiet NaN 0x7FC00000; a code's unused high bits are ignored.
#pragma once

#include <cstdint>

#include "formats/bits.h"
#include "formats/table.h"

namespace octet {
namespace detail {

template <Dtype D>
OCTET_HOST_DEVICE constexpr float decode_ieee(uint32_t code) {
  constexpr FormatRow kRow = kFormatRow<D>;
  constexpr int kFraction = kRow.fraction_bits;
  constexpr uint32_t kTop = (1u << kRow.exponent_bits) - 1;
  const uint32_t sign = ((code >> (kRow.exponent_bits + kFraction)) & 1u) << 31;
  const uint32_t exponent = (code >> kFraction) & kTop;
  const uint32_t fraction = code & ((1u << kFraction) - 1);
  if (exponent == kTop) {
    if (kRow.has_inf) return float_of(fraction == 0 ? sign | kF32Inf : kF32Nan);
    if (fraction == (1u << kFraction) - 1) return float_of(kF32Nan);
  }
  if (exponent == 0) {
    constexpr float kUnit = power_of_two(1 - kRow.bias - kFraction);
    return float_of(bits_of(static_cast<float>(fraction) * kUnit) | sign);
  }
  return float_of(sign | ((exponent + 127 - kRow.bias) << 23) | (fraction << (23 - kFraction)));
}

// Number of fraction bits of a HiF8 value with this exponent, -22 <= exponent <= 15.
OCTET_HOST_DEVICE constexpr int hif8_fraction_bits(int exponent) {
  const int magnitude = exponent < 0 ? -exponent : exponent;
  return magnitude <= 3 ? 3 : magnitude <= 7 ? 2 : magnitude <= 15 ? 1 : 0;
}

OCTET_HOST_DEVICE constexpr float decode_hif8(uint32_t code) {
  constexpr FormatRow kRow = kFormatRow<Dtype::hif8>;
  const uint32_t low = code & 0x7Fu;
  const uint32_t sign = (code & 0x80u) << 24;
  if (low == 0) return float_of(sign != 0 ? kF32Nan : 0u);
  if (low == kRow.overflow_code) return float_of(sign | kF32Inf);
  if (low < 0x08u) return float_of(sign | bits_of(power_of_two(static_cast<int>(low) - 23)));
  int width = 0;  // bits of |exponent| behind its hidden leading 1
  if (low < 0x10u) return float_of(sign | bits_of(1.0f) | ((low & 7u) << 20));
  if (low >= 0x60u) {
    width = 3;
  } else if (low >= 0x40u) {
    width = 2;
  } else if (low >= 0x20u) {
    width = 1;
  }
  const int fraction_bits = width >= 2 ? 4 - width : 3;
  const uint32_t below = (low >> fraction_bits) & ((1u << width) - 1);
  const int magnitude = static_cast<int>((1u << width) | below);
  const bool negative = ((low >> (fraction_bits + width)) & 1u) != 0;
  const uint32_t fraction = low & ((1u << fraction_bits) - 1);
  const uint32_t biased = static_cast<uint32_t>(127 + (negative ? -magnitude : magnitude));
  return float_of(sign | (biased << 23) | (fraction << (23 - fraction_bits)));
}

// Entry `rank` >= 1 of DE8's positive half, ascending. Decade i in 0..6 is [0.1, 1] * 10^(i-6) cut
// in n = 2^i (signed) or 2^(i+1) (unsigned) equal cells; an entry is a cell's mean, (2n + 9 (2 cell
// + 1)) / (20 n 10^(6-i)). Numerator and denominator are exact in f32, so the one f32 division
// rounds the exact rational. The last entry is 1.
OCTET_HOST_DEVICE constexpr float de8_entry(bool is_signed, int rank) {
  const int shifted = is_signed ? rank : rank + 1;
  int log2 = 0;
  while ((shifted >> (log2 + 1)) != 0) ++log2;
  const int decade = is_signed ? log2 : log2 - 1;
  if (decade == 7) return 1.0f;
  const int cells = 1 << log2;
  int denominator = 20 * cells;
  for (int i = decade; i < 6; ++i) denominator *= 10;
  const int numerator = 2 * cells + 9 * (2 * (shifted - cells) + 1);
  return static_cast<float>(numerator) / static_cast<float>(denominator);
}

OCTET_HOST_DEVICE constexpr float decode_de8(bool is_signed, uint32_t code) {
  const int rank = static_cast<int>(code & 0xFFu) - (is_signed ? 127 : 0);
  if (rank == 0) return 0.0f;
  return rank > 0 ? de8_entry(is_signed, rank) : -de8_entry(is_signed, -rank);
}

}  // namespace detail

template <Dtype D>
OCTET_HOST_DEVICE constexpr float decode(uint32_t code) {
  constexpr FormatRow kRow = kFormatRow<D>;
  if constexpr (kRow.rule == DecodeRule::ieee) {
    return detail::decode_ieee<D>(code);
  } else if constexpr (kRow.rule == DecodeRule::hif8) {
    return detail::decode_hif8(code);
  } else if constexpr (kRow.rule == DecodeRule::power) {
    const uint32_t exponent = code & 0xFFu;
    if (exponent == kRow.nan_code) return float_of(kF32Nan);
    return power_of_two(static_cast<int>(exponent) - kRow.bias);
  } else if constexpr (kRow.rule == DecodeRule::integer) {
    return static_cast<float>(static_cast<int8_t>(code & 0xFFu));
  } else {
    return detail::decode_de8(kRow.is_signed, code);
  }
}

}  // namespace octet
