// Values to codes with one rounding, exactly as docs/numerics.md says: |x| lies between two
// neighbours lo <= |x| < hi of the format's grid, F = (|x| - lo) / (hi - lo), and the rounding
// decides from F whether to carry to hi. The grid goes on for one point past the largest finite
// value; a result at or beyond that point is an overflow (rtz: no finite value overflows, it gives
// the largest). Host and device.
#pragma once

#include <cstdint>

#include "formats/bits.h"
#include "formats/decode.h"
#include "formats/table.h"

namespace octet {

struct EncodeOptions {
  bool saturate =
      true;  // finite overflow and Inf give the largest finite value; otherwise overflow_code
  bool nan_to_zero = false;   // NaN gives +0 instead of the canonical NaN
  uint32_t random_bits = 0;   // for sr
  Dtype source = Dtype::f32;  // for hr and hrv: f32, bf16 or fp16, the type x was read from
};

namespace detail {

// What a value leaves behind when it is cut to the grid: F = rest / 2^shift; lo's code is odd or
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
  constexpr FormatRow kRow = format_row(D);
  return options.nan_to_zero ? kRow.zero_code : kRow.nan_code;
}

template <Dtype D>
OCTET_HOST_DEVICE constexpr uint32_t encode_ieee(float x, Rounding rounding,
                                                 const EncodeOptions& options) {
  constexpr FormatRow kRow = format_row(D);
  constexpr int kMinExponent = 1 - kRow.bias;
  if (is_nan(x)) return encode_nan<D>(options);
  const uint32_t sign = (bits_of(x) >> 31) << (kRow.exponent_bits + kRow.fraction_bits);
  const uint32_t limit = options.saturate ? kRow.max_code : kRow.overflow_code;
  if (!is_finite(x)) return sign | limit;
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
  constexpr FormatRow kRow = format_row(Dtype::hif8);
  if (is_nan(x)) return encode_nan<Dtype::hif8>(options);
  const uint32_t sign = (bits_of(x) >> 31) << 7;
  const uint32_t limit = sign | (options.saturate ? kRow.max_code : kRow.overflow_code);
  if ((bits_of(x) & kF32Magnitude) == 0) return kRow.zero_code;
  const Unpacked u = unpack(x);
  const uint32_t finite_limit = rounding == Rounding::rtz ? sign | kRow.max_code : limit;
  if (u.exponent > 15) return is_finite(x) ? finite_limit : limit;
  if (u.exponent < -22) {  // between 0 and 2^-22
    const int wanted = 1 - u.exponent;
    const Remainder r{u.significand, wanted < kMaxShift ? wanted : kMaxShift, false};
    return hif8_carries(x, rounding, r, options) ? sign | kRow.min_code : kRow.zero_code;
  }
  const int width = hif8_fraction_bits(u.exponent);
  const int shift = 23 - width;
  const uint32_t kept = u.significand >> shift;
  const Remainder r{u.significand - (kept << shift), shift, (kept & 1u) != 0};
  uint32_t fraction = kept - (1u << width);
  int exponent = u.exponent;
  if (hif8_carries(x, rounding, r, options) && ++fraction == 1u << width) {
    fraction = 0;
    ++exponent;
  }
  if (exponent > 15 || (exponent == 15 && fraction != 0)) return finite_limit;
  return sign | hif8_code(exponent, fraction);
}

// A scale's power: of |x|, since a scale has no sign.
OCTET_HOST_DEVICE constexpr uint32_t encode_e8m0(float x, Rounding rounding,
                                                 const EncodeOptions& options) {
  constexpr FormatRow kRow = format_row(Dtype::e8m0);
  if (is_nan(x)) return encode_nan<Dtype::e8m0>(options);
  if (x == 0.0f) return kRow.zero_code;
  if (!is_finite(x)) return kRow.max_code;
  const Unpacked u = unpack(x);
  const bool exact = u.significand == 0x00800000u;
  const int code = u.exponent + kRow.bias + (rounding == Rounding::ceil && !exact ? 1 : 0);
  return static_cast<uint32_t>(code < 0 ? 0 : code > kRow.max_code ? kRow.max_code : code);
}

// first[i]: the least f32 that is nearer to entry i + 1 than to entry i, or halfway.
struct De8Thresholds {
  float first[255];
};

constexpr De8Thresholds make_de8_thresholds(bool is_signed) {
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
  constexpr FormatRow kRow = format_row(D);
  static constexpr De8Thresholds kThresholds = make_de8_thresholds(kRow.is_signed);
  if (is_nan(x)) return kRow.zero_code;
  uint32_t code = 0;
  for (uint32_t step = 128; step != 0; step >>= 1) {
    if (x >= kThresholds.first[code + step - 1]) code += step;
  }
  return code;
}

}  // namespace detail

// The code of x. `rounding` is one of rounding_supported(D, ...); another one cuts toward zero.
template <Dtype D>
OCTET_HOST_DEVICE inline uint32_t encode(float x, Rounding rounding = Rounding::near,
                                         const EncodeOptions& options = {}) {
  constexpr FormatRow kRow = format_row(D);
  const Rounding mode = rounding == Rounding::near ? kRow.nearest : rounding;
  if constexpr (kRow.rule == DecodeRule::ieee) {
    return detail::encode_ieee<D>(x, mode, options);
  } else if constexpr (kRow.rule == DecodeRule::hif8) {
    return detail::encode_hif8(x, mode, options);
  } else if constexpr (kRow.rule == DecodeRule::power) {
    return detail::encode_e8m0(x, mode, options);
  } else {
    return detail::encode_de8<D>(x);
  }
}

}  // namespace octet
