// Encode and decode against an independent oracle: the grid as sorted doubles and the rule in plain
// words, no bit tricks.
#include "formats/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/philox.h"

namespace octet::formats_codec_test {
namespace {

constexpr Dtype kFloats[] = {Dtype::e4m3, Dtype::e5m2, Dtype::hif8, Dtype::bf16, Dtype::fp16};

// A positive point of the grid. The last one is past the largest finite value.
struct Point {
  double value;
  uint32_t code;
};

// Value of a positive finite code, written from the layout's description.
double plain_value(Dtype dtype, uint32_t code) {
  struct Layout {
    int exponent, fraction, bias;
  };
  if (dtype == Dtype::hif8) {
    const auto bit = [&](int i) { return static_cast<int>(code >> i & 1u); };
    const auto field = [&](int n) { return static_cast<double>(code & ((1u << n) - 1)); };
    if ((code >> 4) == 0) {
      if ((code >> 3) == 0) return code == 0 ? 0.0 : std::ldexp(1.0, static_cast<int>(code) - 23);
      return 1.0 + field(3) / 8;
    }
    if ((code >> 4) == 1) return std::ldexp(1.0 + field(3) / 8, bit(3) ? -1 : 1);
    if ((code >> 5) == 1) return std::ldexp(1.0 + field(3) / 8, (bit(4) ? -1 : 1) * (2 + bit(3)));
    const int sign = bit(4) ? -1 : 1;
    if ((code >> 5) == 2) {
      return std::ldexp(1.0 + field(2) / 4, sign * (4 + 2 * bit(3) + bit(2)));
    }
    return std::ldexp(1.0 + field(1) / 2, sign * (8 + 4 * bit(3) + 2 * bit(2) + bit(1)));
  }
  const Layout l = dtype == Dtype::e4m3   ? Layout{4, 3, 7}
                   : dtype == Dtype::e5m2 ? Layout{5, 2, 15}
                   : dtype == Dtype::fp16 ? Layout{5, 10, 15}
                                          : Layout{8, 7, 127};
  const double fraction = static_cast<double>(code & ((1u << l.fraction) - 1));
  const int exponent = static_cast<int>(code >> l.fraction);
  const double unit = std::ldexp(1.0, -l.fraction);
  if (exponent == 0) return std::ldexp(fraction * unit, 1 - l.bias);
  return std::ldexp(1.0 + fraction * unit, exponent - l.bias);
}

std::vector<Point> grid(Dtype dtype) {
  const FormatRow row = find_format(dtype);
  std::vector<Point> points;
  for (uint32_t code = 0; code < (1u << (format_bits(row) - 1)); ++code) {
    const bool finite = dtype == Dtype::hif8 ? code != row.overflow_code : code <= row.max_code;
    if (finite) points.push_back({plain_value(dtype, code), code});
  }
  std::sort(points.begin(), points.end(),
            [](const Point& a, const Point& b) { return a.value < b.value; });
  // One more point: 480, 65536, 1.5 * 2^15, 2^128.
  const double past = dtype == Dtype::e4m3 ? 480
                      : dtype == Dtype::hif8
                          ? 49152
                          : 2 * points.back().value - points[points.size() - 2].value;
  points.push_back({past, row.overflow_code});
  return points;
}

// Nearest or truncating code of a finite x, saturating.
uint32_t plain_encode(Dtype dtype, const std::vector<Point>& points, double x, Rounding rounding) {
  const FormatRow row = find_format(dtype);
  const double magnitude = std::fabs(x);
  const auto above = std::upper_bound(points.begin(), points.end(), magnitude,
                                      [](double v, const Point& p) { return v < p.value; });
  size_t index = static_cast<size_t>(above - points.begin()) - 1;
  if (index + 1 < points.size()) {
    const double lo = points[index].value, hi = points[index + 1].value;
    const double twice = 2 * (magnitude - lo), gap = hi - lo;
    const bool odd = (points[index].code & 1u) != 0;
    if (rounding == Rounding::ta && twice >= gap) ++index;
    if (rounding == Rounding::rne && (twice > gap || (twice == gap && odd))) ++index;
  }
  index = std::min(index, points.size() - 2);
  const uint32_t code = points[index].code;
  if (dtype == Dtype::hif8 && code == 0) return 0;
  return code | (std::signbit(x) ? 1u << (format_bits(row) - 1) : 0u);
}

bool is_special(float x) {
  return std::isnan(x) || std::isinf(x);
}

TEST(codec, every_finite_code_decodes_to_its_plain_value_and_back) {
  for (const Dtype dtype : kFloats) {
    const std::vector<Point> points = grid(dtype);
    for (size_t i = 0; i + 1 < points.size(); ++i) {
      const uint32_t code = points[i].code;
      const uint32_t sign = 1u << (format_bits(find_format(dtype)) - 1);
      EXPECT_EQ(decode(dtype, code), points[i].value) << dtype_name(dtype) << " " << code;
      EXPECT_EQ(encode(dtype, decode(dtype, code)), code) << dtype_name(dtype);
      if (dtype == Dtype::hif8 && code == 0) continue;
      EXPECT_EQ(decode(dtype, code | sign), -points[i].value) << dtype_name(dtype) << " " << code;
      EXPECT_EQ(encode(dtype, decode(dtype, code | sign)), code | sign) << dtype_name(dtype);
    }
  }
}

TEST(codec, all_16_bit_patterns_encode_as_the_oracle) {
  for (const Dtype source : {Dtype::bf16, Dtype::fp16}) {
    for (const Dtype dtype : kFloats) {
      const std::vector<Point> points = grid(dtype);
      for (const Rounding rounding : {Rounding::rne, Rounding::ta, Rounding::rtz}) {
        if (!rounding_supported(dtype, rounding)) continue;
        int wrong = 0;
        for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
          const float x = decode(source, pattern);
          if (is_special(x)) continue;
          wrong += encode(dtype, x, rounding) != plain_encode(dtype, points, x, rounding);
        }
        EXPECT_EQ(wrong, 0) << dtype_name(source) << " " << dtype_name(dtype) << " "
                            << rounding_name(rounding);
      }
    }
  }
}

TEST(codec, random_f32_patterns_encode_as_the_oracle) {
  const RandomStream random{.name = name_hash("formats")};
  for (const Dtype dtype : kFloats) {
    const std::vector<Point> points = grid(dtype);
    for (const Rounding rounding : {Rounding::rne, Rounding::ta, Rounding::rtz}) {
      if (!rounding_supported(dtype, rounding)) continue;
      for (uint32_t i = 0; i < 50000; ++i) {
        const float x = float_of(random.bits(i));
        if (is_special(x)) continue;
        ASSERT_EQ(encode(dtype, x, rounding), plain_encode(dtype, points, x, rounding))
            << dtype_name(dtype) << " " << rounding_name(rounding) << " " << x;
      }
    }
  }
}

// Ties go to even codes, down to where the grid is powers of two and between 0 and the least.
TEST(codec, hif8_rounds_ties_to_even_codes_where_it_is_asked_to) {
  ASSERT_TRUE(rounding_supported(Dtype::hif8, Rounding::rne));
  const std::vector<Point> points = grid(Dtype::hif8);
  for (size_t i = 0; i + 2 < points.size(); ++i) {
    const auto tie = static_cast<float>((points[i].value + points[i + 1].value) / 2);
    const uint32_t rne = encode(Dtype::hif8, tie, Rounding::rne);
    EXPECT_EQ(rne, (points[i].code & 1u) == 0 ? points[i].code : points[i + 1].code) << tie;
    EXPECT_EQ(rne & 1u, 0u) << tie;
    EXPECT_EQ(encode(Dtype::hif8, tie, Rounding::ta), points[i + 1].code) << tie;
  }
}

TEST(codec, nearest_encoding_is_monotone) {
  for (const FormatRow& row : kFormats) {
    if (row.dtype == Dtype::e8m0) continue;
    float last = -std::numeric_limits<float>::infinity();
    for (int32_t i = 65535; i >= -65536; --i) {  // f32 patterns from -max to max, every 2^15
      const uint32_t bits = i >= 0 ? 0x80000000u | static_cast<uint32_t>(i) << 15
                                   : static_cast<uint32_t>(-i - 1) << 15;
      const float x = float_of(bits);
      if (is_special(x)) continue;
      const float value = decode(row.dtype, encode(row.dtype, x));
      ASSERT_LE(last, value) << dtype_name(row.dtype) << " " << x;
      last = value;
    }
  }
}

TEST(codec, stochastic_rounding_is_unbiased_and_never_moves_exact_values) {
  const RandomStream random{.name = name_hash("sr")};
  for (const Dtype dtype : kFloats) {
    const float x = dtype == Dtype::hif8 ? 20.3f : 19.9f / 16;
    double sum = 0;
    constexpr int kDraws = 20000;
    double lo = 1e9, hi = -1e9;
    for (int i = 0; i < kDraws; ++i) {
      const EncodeOptions options{.random_bits = random.bits(i)};
      const double value = decode(dtype, encode(dtype, x, Rounding::sr, options));
      sum += value, lo = std::min(lo, value), hi = std::max(hi, value);
      const float exact = decode(dtype, encode(dtype, x));
      EXPECT_EQ(decode(dtype, encode(dtype, exact, Rounding::sr, options)), exact);
    }
    EXPECT_LT(lo, x);
    EXPECT_GT(hi, x);
    EXPECT_NEAR(sum / kDraws, x, 5 * (hi - lo) / 2 / std::sqrt(kDraws)) << dtype_name(dtype);
  }
}

TEST(codec, guarded_hybrid_rounding_keeps_every_code_and_the_literal_one_does_not) {
  int moved = 0;
  for (uint32_t code = 0; code < 256; ++code) {
    const float x = decode(Dtype::hif8, code);
    if (is_special(x)) continue;
    EXPECT_EQ(encode(Dtype::hif8, x, Rounding::hr), code);
    moved += encode(Dtype::hif8, x, Rounding::hrv, {.saturate = false}) != code;
  }
  EXPECT_EQ(moved, 140);
}

TEST(codec, corner_cases_follow_the_table) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const EncodeOptions wrap{.saturate = false};
  struct Case {
    Dtype dtype;
    float x;
    uint32_t saturated, wrapped;
  };
  const Case cases[] = {
      {Dtype::e4m3, 464.0f, 0x7E, 0x7E},
      {Dtype::e4m3, 465.0f, 0x7E, 0x7F},
      {Dtype::e4m3, -465.0f, 0xFE, 0xFF},
      {Dtype::e4m3, inf, 0x7E, 0x7F},
      {Dtype::e4m3, nan, 0x7F, 0x7F},
      {Dtype::e4m3, -0x1p-10f, 0x80, 0x80},
      {Dtype::e5m2, 61440.0f, 0x7B, 0x7C},
      {Dtype::e5m2, -inf, 0xFB, 0xFC},
      {Dtype::e5m2, nan, 0x7F, 0x7F},
      {Dtype::e5m2, 0x1p-17f, 0x00, 0x00},
      {Dtype::hif8, 40959.0f, 0x6E, 0x6E},
      {Dtype::hif8, 40960.0f, 0x6E, 0x6F},
      {Dtype::hif8, -inf, 0xEE, 0xEF},
      {Dtype::hif8, nan, 0x80, 0x80},
      {Dtype::hif8, 0x1p-23f, 0x01, 0x01},
      {Dtype::hif8, -0x1.FFFFp-24f, 0x00, 0x00},
      {Dtype::hif8, -0.0f, 0x00, 0x00},
      {Dtype::e4m3, 0x1p-140f, 0x00, 0x00},
      {Dtype::fp16, 65520.0f, 0x7BFF, 0x7C00},
      {Dtype::bf16, 0x1.FFp127f, 0x7F7F, 0x7F80},
      {Dtype::e8m0, inf, 254, 254},
      {Dtype::e8m0, nan, 255, 255},
      {Dtype::e8m0, 0.0f, 0, 0},
      {Dtype::de8s, nan, 127, 127},
      {Dtype::de8s, -5.0f, 0, 0},
      {Dtype::de8u, 5.0f, 255, 255},
      {Dtype::de8u, -5.0f, 0, 0},
  };
  for (const Case& c : cases) {
    const Rounding rounding = find_format(c.dtype).nearest;
    EXPECT_EQ(encode(c.dtype, c.x, rounding), c.saturated) << dtype_name(c.dtype) << " " << c.x;
    EXPECT_EQ(encode(c.dtype, c.x, rounding, wrap), c.wrapped) << dtype_name(c.dtype) << " " << c.x;
  }
  EXPECT_EQ(encode(Dtype::hif8, nan, Rounding::ta, {.nan_to_zero = true}), 0u);
}

TEST(codec, dynamic_exponent_codes_are_sorted_and_counted_by_decade) {
  for (const Dtype dtype : {Dtype::de8s, Dtype::de8u}) {
    const bool is_signed = dtype == Dtype::de8s;
    int decades[7] = {};
    for (uint32_t code = 0; code < 256; ++code) {
      const float x = decode(dtype, code);
      EXPECT_LT(code == 0 ? -1.0f : decode(dtype, code - 1), x);
      if (x > 0 && x < 1) ++decades[static_cast<int>(std::floor(std::log10(x))) + 7];
      EXPECT_EQ(encode(dtype, x), code);
    }
    for (int i = 0; i < 7; ++i) EXPECT_EQ(decades[i], 1 << (is_signed ? i : i + 1));
    EXPECT_EQ(decode(dtype, find_format(dtype).zero_code), 0.0f);
    EXPECT_EQ(find_format(dtype).expansion_ratio_v, 1.0 / min_positive(dtype));
  }
}

TEST(codec, int8_is_symmetric_and_rounds_ties_to_even) {
  const auto code = [](float x) { return static_cast<int8_t>(encode(Dtype::int8, x)); };
  for (int i = -127; i <= 127; ++i) {
    EXPECT_EQ(code(static_cast<float>(i)), i);
    EXPECT_EQ(decode(Dtype::int8, static_cast<uint8_t>(i)), static_cast<float>(i));
    const float middle = static_cast<float>(i) + 0.5f;
    const int even = i % 2 == 0 ? i : i + 1;
    EXPECT_EQ(code(middle), std::clamp(even, -127, 127)) << middle;
  }
  EXPECT_EQ(code(0.5f), 0);
  EXPECT_EQ(code(-0.5f), 0);
  EXPECT_EQ(code(std::nextafter(0.5f, 1.0f)), 1);
  EXPECT_EQ(code(-128), -127);
  EXPECT_EQ(code(-1e30f), -127);
  EXPECT_EQ(code(std::numeric_limits<float>::infinity()), 127);
  EXPECT_EQ(code(std::numeric_limits<float>::quiet_NaN()), 0);
  EXPECT_EQ(code(1e-45f), 0);
  EXPECT_EQ(decode(Dtype::int8, 0x80), -128);  // never written, and read as what it says
  EXPECT_FALSE(is_gemm_operand(Dtype::int8));
}

TEST(codec, the_rows_agree_with_their_codes) {
  for (const FormatRow& row : kFormats) {
    EXPECT_EQ(dtype_bytes(row.dtype) * 8, format_bits(row));
    EXPECT_EQ(encode(row.dtype, max_finite(row.dtype), row.nearest), row.max_code);
    EXPECT_EQ(encode(row.dtype, min_positive(row.dtype), row.nearest), row.min_code);
    EXPECT_LE(row.amax_target, max_finite(row.dtype));
  }
  EXPECT_EQ(find_format(Dtype::e4m3).expansion_ratio_m, 448.0 / min_positive(Dtype::e4m3));
  EXPECT_EQ(find_format(Dtype::e5m2).expansion_ratio_v, 57344.0 / min_positive(Dtype::e5m2));
  EXPECT_EQ(min_normal(Dtype::e4m3), 0x1p-6f);
  EXPECT_EQ(min_normal(Dtype::hif8), 0x1p-15f);
}

TEST(codec, unknown_formats_and_roundings_are_errors) {
  EXPECT_THROW(decode(Dtype::f32, 0), Error);
  EXPECT_THROW(encode(Dtype::e4m3, 1.0f, Rounding::hr), Error);
  EXPECT_THROW(encode(Dtype::hif8, 1.0f, Rounding::floor), Error);
  EXPECT_THROW(encode(Dtype::e8m0, 1.0f, Rounding::near), Error);
  EXPECT_EQ(rounding_from_name("nearest"), Rounding::near);
  EXPECT_EQ(rounding_from_name("up"), std::nullopt);
}

// Signal to noise of N(0, sigma^2) without a scale, from numerical integration: docs/numerics.md.
TEST(codec, signal_to_noise_is_as_integrated) {
  struct Case {
    Dtype dtype;
    int log2_sigma;
    double db;
  };
  const Case cases[] = {{Dtype::e4m3, -8, 16.8}, {Dtype::e4m3, 0, 31.5},  {Dtype::e4m3, 8, 16.2},
                        {Dtype::e5m2, 0, 25.5},  {Dtype::e5m2, 16, 7.0},  {Dtype::hif8, -12, 19.7},
                        {Dtype::hif8, 0, 31.5},  {Dtype::hif8, -4, 26.8}, {Dtype::hif8, 16, 3.8}};
  constexpr int kSamples = 1 << 20;
  const RandomStream random{.name = name_hash("snr"), .seed = 1};
  std::vector<float> normal(kSamples);
  for (int i = 0; i < kSamples; ++i) normal[i] = random.normal(i);
  for (const Case& c : cases) {
    double signal = 0, noise = 0;
    for (const float z : normal) {
      const float x = std::ldexp(z, c.log2_sigma);
      const double error = static_cast<double>(decode(c.dtype, encode(c.dtype, x))) - x;
      signal += static_cast<double>(x) * x;
      noise += error * error;
    }
    // The table has one decimal: 0.05 for its rounding and 0.05 for the sample.
    EXPECT_NEAR(10 * std::log10(signal / noise), c.db, 0.1) << dtype_name(c.dtype) << c.log2_sigma;
  }
}

// Every finite code of a format that says so is one of BF16's values, and of one that does not some
// code is none.
TEST(FormatTable, exact_in_bf16_is_what_the_codes_say) {
  for (const FormatRow& row : kFormats) {
    bool exact = true;
    for (uint32_t code = 0; code < 1u << format_bits(row); ++code) {
      const float x = decode(row.dtype, code);
      if (!std::isfinite(x)) continue;
      exact = exact && decode<Dtype::bf16>(encode<Dtype::bf16>(x)) == x;
    }
    EXPECT_EQ(row.exact_in_bf16, exact) << dtype_name(row.dtype);
  }
}

TEST(FormatTable, moments_have_codecs_and_a_second_moment_that_is_a_moment) {
  for (const FormatRow& row : kFormats) {
    if (row.second_moment == Dtype::real) continue;
    EXPECT_TRUE(is_format(row.second_moment)) << dtype_name(row.dtype);
    if (!is_quantized(row.dtype)) continue;
    for (const Dtype dtype : {row.dtype, row.second_moment}) {
      EXPECT_TRUE(has_codec(dtype) && is_moment_format(dtype)) << dtype_name(dtype);
      EXPECT_GT(format_row(dtype).expansion_ratio_v, 0) << dtype_name(dtype);
    }
  }
}

}  // namespace
}  // namespace octet::formats_codec_test
