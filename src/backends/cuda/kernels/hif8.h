// HiF8's nearest, saturating encoder without loops: formats/encode_hif8.h's bits for every f32.
#pragma once

#include "formats/bits.h"

namespace octet::cuda {

// Rounding to w fraction bits, ties away from zero, adds half a unit to the pattern of |x|; w
// follows from |x|'s exponent. What is left below the unit is less than half of it, so that the
// fraction may be cut at the width of the rounded exponent, one wider at most.
OCTET_HOST_DEVICE inline uint32_t hif8_nearest(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t magnitude = bits & kF32Magnitude;
  const uint32_t sign = (bits >> 24) & 0x80u;
  if (magnitude >= 0x47000000u) return magnitude > kF32Inf ? 0x80u : sign | 0x6Eu;  // 2^15 on
  if (magnitude < 0x34800000u) return magnitude < 0x34000000u ? 0u : sign | 0x01u;  // below 2^-22
  const auto size_of = [](int exponent) { return exponent < 0 ? -exponent : exponent; };
  const auto width_of = [](int size) { return 3 - (size >= 4) - (size >= 8) - (size >= 16); };
  const int width = width_of(size_of(static_cast<int>(magnitude >> 23) - 127));
  const uint32_t rounded = magnitude + (0x00400000u >> width);
  const int exponent = static_cast<int>(rounded >> 23) - 127;
  const int size = size_of(exponent);
  if (exponent < -15) return sign | static_cast<uint32_t>(exponent + 23);
  const int fraction_bits = width_of(size);
  const uint32_t fraction = (rounded & 0x007FFFFFu) >> (23 - fraction_bits);
  if (size == 0) return sign | 0x08u | fraction;
  // The prefix stands above the exponent's sign, the bits of |exponent| behind its leading 1, and
  // the fraction.
  const int hidden = (size >= 2) + (size >= 4) + (size >= 8);
  const uint32_t prefix = hidden == 0 ? 0x10u : 0x20u + 0x20u * static_cast<uint32_t>(hidden - 1);
  const uint32_t negative = exponent < 0 ? 1u << (hidden + fraction_bits) : 0u;
  const auto rest = static_cast<uint32_t>(size - (1 << hidden)) << fraction_bits;
  return sign | prefix | negative | rest | fraction;
}

}  // namespace octet::cuda
