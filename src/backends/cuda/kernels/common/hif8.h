// HiF8's nearest, saturating encoder: formats/encode_hif8.h's bits for every f32. Host and device.
#pragma once

#include <cstdint>

#include "formats/bits.h"

namespace octet::cuda {

// Rounding to w fraction bits, ties away from zero, adds half a unit to the pattern of |x|; w
// follows from |x|'s exponent. What is left below the unit is less than half of it, so that the
// fraction may be cut at the width of the rounded exponent, one wider at most. Below 2^-22 stand
// 2^-22 and 0; from 2^15 on everything is the largest value.
OCTET_HOST_DEVICE constexpr uint32_t hif8_nearest(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t magnitude = bits & kF32Magnitude;
  const uint32_t sign = (bits >> 24) & 0x80u;
  if (magnitude >= 0x47000000u) return magnitude > kF32Inf ? 0x80u : sign | 0x6Eu;
  if (magnitude < 0x34800000u) return magnitude < 0x34000000u ? 0u : sign | 0x01u;
  const int of = static_cast<int>(magnitude >> 23) - 127;
  const int before = of < 0 ? -of : of;
  const int width = 3 - (before >= 4) - (before >= 8) - (before >= 16);
  const uint32_t rounded = magnitude + (0x00400000u >> width);
  const int exponent = static_cast<int>(rounded >> 23) - 127;
  if (exponent < -15) return sign | static_cast<uint32_t>(exponent + 23);
  const int size = exponent < 0 ? -exponent : exponent;
  const int fraction_bits = 3 - (size >= 4) - (size >= 8);
  const uint32_t fraction = (rounded & 0x007FFFFFu) >> (23 - fraction_bits);
  if (size == 0) return sign | 0x08u | fraction;
  // The prefix stands above the exponent's sign, the bits of |exponent| behind its leading 1, and
  // the fraction.
  const int hidden = (size >= 2) + (size >= 4) + (size >= 8);
  const uint32_t prefix = hidden == 0 ? 0x10u : 0x20u * static_cast<uint32_t>(hidden);
  const uint32_t negative = exponent < 0 ? 1u << (hidden + fraction_bits) : 0u;
  const uint32_t rest = static_cast<uint32_t>(size - (1 << hidden)) << fraction_bits;
  return sign | prefix | negative | rest | fraction;
}

// The same as a table: three fraction bits at most and ties away from zero leave the choice to
// sign, exponent and the first four bits of the fraction. A NaN has one of these four set, as
// every product has.
inline constexpr int kHif8Shift = 19;
inline constexpr int kHif8Entries = 1 << (32 - kHif8Shift);
struct alignas(16) Hif8Table {
  uint8_t code[kHif8Entries];
};
OCTET_HOST_DEVICE constexpr uint32_t hif8_entry(uint32_t index) {
  return hif8_nearest(float_of(index << kHif8Shift));
}
constexpr Hif8Table make_hif8_table() {
  Hif8Table table{};
  for (uint32_t i = 0; i < kHif8Entries; ++i) table.code[i] = static_cast<uint8_t>(hif8_entry(i));
  return table;
}

}  // namespace octet::cuda
