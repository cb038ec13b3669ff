// Dynamic range expansion of a group (Xi et al., COAT, ICLR 2025), written so that nothing
// overflows:
//
//   q_i = encode( sign(x_i) * (|x_i| / amax)^k * target )        x_i ~ sign(q_i) * (|q_i| /
//   target)^(1/k) * amax k   = log(R_fmt) / log(R) cut to a multiple of 1/16, in [1/16, 255/16], R
//   = amax / min over the nonzero |x_i|
//
// Metadata, one u32 per group: (floor((bits(amax) + up) / 2^7) << 8) | 16k. `up` is 127, which
// rounds up; moments that are rounded to nearest draw it (math/moment.h). Codes are made with the
// *stored* amax and k, and what is above it takes the largest code. amax, k and metadata are
// bit-identical everywhere; the powers are too with MathMode::exact. A group of zeros, or with amax
// < 2^-100: codes and metadata 0, decodes to 0. Exact zeros stay 0 and do not count in R. Nothing
// nonzero becomes 0: it takes the smallest code of its sign. NaN and Inf do not count in amax and
// set a flag.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "formats/bf16.h"
#include "formats/decode.h"
#include "formats/encode.h"
#include "formats/table.h"
#include "math/powers.h"
#include "math/range.h"

namespace octet {

enum class Moment : uint8_t { first, second };  // Adam's m and v: they may have different R_fmt

inline constexpr float kMinExpansionAmax = 0x1p-100f;

// Needs of a group's quantizer besides its format: target value, and the table of limits.
struct Expansion {
  float target;
  RangeThresholds thresholds;
};

template <Dtype D, Moment M>
inline constexpr Expansion kExpansion = {
    kFormatRow<D>.amax_target,
    make_range_thresholds(M == Moment::first ? kFormatRow<D>.expansion_ratio_m
                                             : kFormatRow<D>.expansion_ratio_v)};

// amax over the finite members; amin over the nonzero finite ones (Inf when there is none).
struct AbsRange {
  float amax = 0.0f;
  float amin = float_of(kF32Inf);
  bool nonfinite = false;
};

OCTET_HOST_DEVICE constexpr AbsRange join(const AbsRange& a, float x) {
  if (!is_finite(x)) return {a.amax, a.amin, true};
  const float magnitude = float_of(bits_of(x) & kF32Magnitude);
  return {magnitude > a.amax ? magnitude : a.amax,
          magnitude != 0.0f && magnitude < a.amin ? magnitude : a.amin, a.nonfinite};
}

inline constexpr uint32_t kAmaxUp = 127;  // all that is cut: rounds up

// amax cut to 24 bits (sign, exponent, 16 of fraction) after `up` is added to the bits that are
// cut; at most the largest finite one.
OCTET_HOST_DEVICE constexpr uint32_t expansion_amax24(float amax, uint32_t up = kAmaxUp) {
  constexpr uint32_t kLargest = (kF32Inf >> 7) - 1;
  const uint32_t cut = (bits_of(amax) + up) >> 7;
  return cut < kLargest ? cut : kLargest;
}

OCTET_HOST_DEVICE constexpr uint32_t expansion_meta(const AbsRange& range,
                                                    const RangeThresholds& thresholds,
                                                    uint32_t up = kAmaxUp) {
  if (!(range.amax >= kMinExpansionAmax)) return 0;
  const uint32_t amax24 = expansion_amax24(range.amax, up);
  const int k16 = choose_k16(range_of(float_of(amax24 << 7), range.amin), thresholds);
  return (amax24 << 8) | static_cast<uint32_t>(k16);
}

OCTET_HOST_DEVICE constexpr float meta_amax(uint32_t meta) {
  return float_of((meta >> 8) << 7);
}
OCTET_HOST_DEVICE constexpr int meta_k16(uint32_t meta) {
  return static_cast<int>(meta & 0xFFu);
}

// The value to encode, sign(x) (|x|/amax)^k target; 0 for x = 0 and meta = 0. NaN stays NaN, Inf
// stays Inf.
template <MathMode Mode>
OCTET_HOST_DEVICE inline float expand(float x, uint32_t meta, float target) {
  const uint32_t magnitude = bits_of(x) & kF32Magnitude;
  if (magnitude >= kF32Inf) return x;
  if (magnitude == 0 || meta == 0) return 0.0f;
  const float amax = meta_amax(meta);
  float y = 0.0f;
  if constexpr (Mode == MathMode::exact) {
    const double ratio = static_cast<double>(float_of(magnitude)) / static_cast<double>(amax);
    y = static_cast<float>(exp2_exact(log2_exact(ratio) * meta_k16(meta) / 16) * target);
  } else {
    const Unpacked u = unpack(x), top = unpack(amax);
    const float quotient = static_cast<float>(u.significand) / static_cast<float>(top.significand);
    const float log2_ratio = static_cast<float>(u.exponent - top.exponent) + log2f(quotient);
    y = exp2f(log2_ratio * (static_cast<float>(meta_k16(meta)) * 0.0625f)) * target;
  }
  return x < 0 ? -y : y;
}

// The inverse, from the decoded code q: sign(q) (|q|/target)^(1/k) amax; nonzero q never gives 0.
template <MathMode Mode>
OCTET_HOST_DEVICE inline float contract(float q, uint32_t meta, float target) {
  if (is_nan(q)) return q;
  if (q == 0.0f || meta == 0) return 0.0f;
  const float amax = meta_amax(meta);
  const float ratio_f32 = float_of(bits_of(q) & kF32Magnitude) / target;
  float x = 0.0f;
  if constexpr (Mode == MathMode::exact) {
    const double ratio =
        static_cast<double>(float_of(bits_of(q) & kF32Magnitude)) / static_cast<double>(target);
    const double power = exp2_exact(log2_exact(ratio) * 16 / meta_k16(meta));
    x = static_cast<float>(power * static_cast<double>(amax));
  } else {
    // The power may leave f32's range where its product with amax does not: whole part apart, rest
    // in (-1, 0].
    const float y = log2f(ratio_f32) * (16.0f / static_cast<float>(meta_k16(meta)));
    const float whole = ceilf(y);
    x = ldexpf(exp2f(y - whole) * amax, static_cast<int>(whole));
  }
  if (!(x < float_of(kF32Inf))) x = float_of(kF32Inf - 1);
  if (x == 0.0f) x = float_of(1u);
  return q < 0 ? -x : x;
}

// The code of x in a group with this metadata. `rounding` may be the format's stochastic one.
template <Dtype D, MathMode Mode>
OCTET_HOST_DEVICE inline uint32_t expand_encode(float x, uint32_t meta,
                                                Rounding rounding = Rounding::near,
                                                const EncodeOptions& options = {}) {
  constexpr FormatRow kRow = kFormatRow<D>;
  if (meta == 0) return 0;
  const uint32_t code = encode<D>(expand<Mode>(x, meta, kRow.amax_target), rounding, options);
  const bool vanished = (bits_of(x) & kF32Magnitude) - 1u < kF32Inf && decode<D>(code) == 0.0f;
  if (!vanished) return code;
  if (x > 0) return kRow.min_code;
  if constexpr (kRow.rule == DecodeRule::dynamic) {
    return kRow.is_signed ? kRow.zero_code - 1u : kRow.zero_code;
  }
  return kRow.min_code | 0x80u;
}

template <Dtype D, MathMode Mode>
OCTET_HOST_DEVICE inline float expand_decode(uint32_t code, uint32_t meta) {
  return contract<Mode>(decode<D>(code), meta, kFormatRow<D>.amax_target);
}

struct ExpandOptions {
  Dtype format = Dtype::e4m3;  // e4m3, e5m2, hif8, de8s, de8u
  Moment moment = Moment::first;
  int64_t group = 128;  // consecutive elements in row-major order; the last group may be shorter
  MathMode math = MathMode::exact;
};

// The table of a format; throws ErrorCode::invalid_argument when it has no expansion.
const Expansion& find_expansion(Dtype format, Moment moment);

int64_t expand_groups(int64_t n_elems, int64_t group);

// codes: as x; meta: expand_groups(n). Returns true when x holds a NaN or Inf. Throws
// ErrorCode::invalid_argument when a size does not fit or the format has no expansion;
// expand_dequantize throws ErrorCode::bad_data for metadata that no quantizer writes. Scalar
// reference.
bool expand_quantize(const ExpandOptions& options, std::span<const float> x,
                     std::span<uint8_t> codes, std::span<uint32_t> meta);
void expand_dequantize(const ExpandOptions& options, std::span<const uint8_t> codes,
                       std::span<const uint32_t> meta, std::span<float> x);

}  // namespace octet
