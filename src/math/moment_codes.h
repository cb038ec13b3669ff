// One value of a moment to its code and back, by the formulas of math/moment.h, one after another.
// Host and device: every back end that wants their bits calls these.
#pragma once

#include "math/moment.h"

namespace octet {
namespace detail {

template <Dtype D>
OCTET_HOST_DEVICE inline float decode_moment(const MomentCoding& coding, uint32_t meta,
                                             uint32_t code) {
  const float q = decode<D>(code);
  if (!coding.expand) return meta == 0 ? 0.0f : q / kFormatRow<D>.amax_target * meta_amax(meta);
  if (coding.math == MathMode::exact)
    return contract<MathMode::exact>(q, meta, kFormatRow<D>.amax_target);
  return contract<MathMode::fast>(q, meta, kFormatRow<D>.amax_target);
}

// Value that is encoded: sign(x) (|x|/amax)^k target, the smallest code's value where zero is not
// allowed. meta is not 0.
template <Dtype D>
OCTET_HOST_DEVICE inline float scale_moment(const MomentCoding& coding, uint32_t meta, float x) {
  constexpr float kTarget = kFormatRow<D>.amax_target;
  const float least = keeps_nonzero(coding) ? decode<D>(kFormatRow<D>.min_code) : 0.0f;
  float y = 0.0f;
  if (!coding.expand) {
    y = x / meta_amax(meta) * kTarget;
  } else if (coding.math == MathMode::exact) {
    y = expand<MathMode::exact>(x, meta, kTarget);
  } else {
    y = expand<MathMode::fast>(x, meta, kTarget);
  }
  const bool vanishes = x != 0.0f && float_of(bits_of(y) & kF32Magnitude) < least;
  return !vanishes ? y : x > 0 ? least : -least;
}

// The neighbour of a code away from zero (step 1) or toward it (step -1). HiF8's codes are not in
// the order of their values: there the neighbour comes from the value.
template <Dtype D>
OCTET_HOST_DEVICE inline uint32_t next_code(uint32_t code, bool negative, int step) {
  constexpr FormatRow kRow = kFormatRow<D>;
  if constexpr (kRow.rule == DecodeRule::dynamic) {
    return static_cast<uint32_t>(static_cast<int>(code) + (negative ? -step : step));
  } else if constexpr (kRow.rule == DecodeRule::hif8) {
    const uint32_t sign = negative ? 0x80u : 0u;
    const float magnitude = decode<D>(code & 0x7Fu);
    if (magnitude == 0.0f) return kRow.min_code | sign;
    const int exponent = unpack(magnitude).exponent;
    const float place = power_of_two(exponent - detail::hif8_fraction_bits(exponent));
    const float next = step > 0 ? magnitude + place : float_of(bits_of(magnitude) - 1);
    const uint32_t found = encode<D>(next, Rounding::rtz);
    return found == kRow.zero_code ? found : found | sign;
  } else {
    return static_cast<uint32_t>(static_cast<int>(code) + step);
  }
}

OCTET_HOST_DEVICE inline float magnitude_of(float value) {
  return float_of(bits_of(value) & kF32Magnitude);
}

// Draws between the nearest code and the neighbour on x's other side, by the distances of the
// decoded values.
template <Dtype D>
OCTET_HOST_DEVICE inline uint32_t draw_moment(const MomentCoding& coding, uint32_t meta, float x,
                                              uint32_t random) {
  constexpr FormatRow kRow = kFormatRow<D>;
  const uint32_t nearest = encode<D>(scale_moment<D>(coding, meta, x));
  const float size = magnitude_of(x);
  const float here = magnitude_of(decode_moment<D>(coding, meta, nearest));
  if (!is_finite(x) || x == 0.0f || here == size) return nearest;
  uint32_t lo = nearest, hi = nearest;
  if (here > size) {
    lo = next_code<D>(nearest, x < 0, -1);
    if (keeps_nonzero(coding) && decode<D>(lo) == 0.0f) return nearest;
  } else {
    const bool no_more = kRow.rule == DecodeRule::dynamic && x < 0 && nearest == 0;  // no -1
    if (no_more || magnitude_of(decode<D>(nearest)) >= kRow.amax_target) return nearest;
    hi = next_code<D>(nearest, x < 0, 1);
  }
  const float below = magnitude_of(decode_moment<D>(coding, meta, lo));
  const float above = magnitude_of(decode_moment<D>(coding, meta, hi));
  const float share = (size - below) / (above - below);
  return static_cast<float>(random >> 8) * 0x1p-24f < share ? hi : lo;
}

}  // namespace detail

// The code of x in a group with this metadata; meta is not 0. `random` counts where the coding is
// stochastic.
template <Dtype D>
OCTET_HOST_DEVICE inline uint32_t encode_moment(const MomentCoding& coding, uint32_t meta, float x,
                                                uint32_t random) {
  if (coding.stochastic) return detail::draw_moment<D>(coding, meta, x, random);
  return encode<D>(detail::scale_moment<D>(coding, meta, x));
}

}  // namespace octet
