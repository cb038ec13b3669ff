// The choice of a group's exponent k in dynamic range expansion, in multiples of 1/16, without a
// logarithm at run time: the group's range against a table of limits. Host and device;
// bit-identical everywhere.
#pragma once

#include <cstdint>

#include "formats/bits.h"
#include "math/powers.h"

namespace octet {

inline constexpr int kMaxK16 = 255;

// A positive number as significand in [1, 2), f32, times 2^exponent: a range R, or a threshold for
// it.
struct Range {
  int exponent = 0;
  float significand = 1.0f;
};

// Without a branch, which could not be foreseen.
OCTET_HOST_DEVICE constexpr bool operator<=(const Range& a, const Range& b) {
  const auto order = [](const Range& r) {
    return static_cast<int64_t>(r.exponent) * (int64_t{1} << 32) + bits_of(r.significand);
  };
  return order(a) <= order(b);
}

// amax / amin: difference of the exponents, and the f32 quotient, to nearest, of the significands.
OCTET_HOST_DEVICE constexpr Range range_of(float amax, float amin) {
  const Unpacked hi = unpack(amax), lo = unpack(amin);
  const int below = hi.significand < lo.significand ? 1 : 0;
  return {hi.exponent - lo.exponent - below,
          static_cast<float>(hi.significand << below) / static_cast<float>(lo.significand)};
}

// limit[j-1] = R_fmt^(16/j), significand cut to f32: R <= limit decides as the real number would,
// because R is an f32.
struct RangeThresholds {
  Range limit[kMaxK16];
};

// From log2_exact and exp2_exact, hence the same table everywhere. Their error, below 2^-44 here,
// moves a significand across an f32 only where R_fmt^(16/j) is itself an f32 (16/j whole, or R_fmt
// a power of two): the nudge by 2^-40 puts those on their value. No other limit lies within 2^-36
// of an f32; a test proves the table with whole numbers.
constexpr RangeThresholds make_range_thresholds(double ratio) {
  RangeThresholds result{};
  const double log2_ratio = log2_exact(ratio);
  for (int j = 1; j <= kMaxK16; ++j) {
    const double log2_limit = log2_ratio * 16 / j;
    const int exponent = static_cast<int>(log2_limit + 0x1p-42);
    const double value = exp2_exact(log2_limit - exponent) * (1.0 + 0x1p-40);
    float cut = static_cast<float>(value);
    if (cut > value) cut = float_of(bits_of(cut) - 1);
    result.limit[j - 1] = {exponent, cut};
  }
  return result;
}

// log2 within 0.0001, fitted.
OCTET_HOST_DEVICE constexpr float rough_log2(const Range& r) {
  const float f = r.significand - 1.0f;
  const float lower = 1.44196582f - 0.70966607f * f, upper = 0.41760811f - 0.19628714f * f;
  return static_cast<float>(r.exponent) + f * (lower + f * f * (upper + 0.04639367f * f * f));
}

// 16k: the largest j with range <= limit[j-1], at least 1. The limits fall with j. A guess from
// rough logarithms is nearly always right; the limits alone decide.
OCTET_HOST_DEVICE constexpr int choose_k16(const Range& range, const RangeThresholds& thresholds) {
  const float least = 16.0f * rough_log2(thresholds.limit[15]) / kMaxK16;  // log2 R that gives 255
  const float log2_range = rough_log2(range);
  const float guess = log2_range > least ? least * kMaxK16 / log2_range : kMaxK16;
  int k16 = guess < 1.0f ? 1 : static_cast<int>(guess);
  while (k16 > 1 && !(range <= thresholds.limit[k16 - 1])) --k16;
  while (k16 < kMaxK16 && range <= thresholds.limit[k16]) ++k16;
  return k16;
}

}  // namespace octet
