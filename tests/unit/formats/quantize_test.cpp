#include "formats/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/philox.h"

namespace octet::formats_quantize_test {
namespace {

constexpr Dtype kElements[] = {Dtype::e4m3, Dtype::e5m2, Dtype::hif8, Dtype::de8s};

std::vector<float> normals(int64_t n, float sigma) {
  const RandomStream random{.name = name_hash("quantize")};
  std::vector<float> x(n);
  for (int64_t i = 0; i < n; ++i) x[i] = sigma * random.normal(i);
  return x;
}

struct Result {
  std::vector<uint8_t> codes;
  std::vector<float> scales, back;
  bool nonfinite = false;
};

Result run(const Quantizer& q, const MatrixShape& shape, const std::vector<float>& x) {
  Result r;
  r.codes.assign(x.size(), 0xA5);
  r.scales.assign(scale_shape(shape, q.granularity).n_elems(), -1.0f);
  r.back.assign(x.size(), -7.0f);
  r.nonfinite = quantize(q, shape, x, r.codes, r.scales);
  dequantize(q, shape, r.codes, r.scales, r.back);
  return r;
}

double snr_db(const std::vector<float>& x, const std::vector<float>& y) {
  double signal = 0, noise = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    signal += static_cast<double>(x[i]) * x[i];
    noise += (static_cast<double>(y[i]) - x[i]) * (static_cast<double>(y[i]) - x[i]);
  }
  return 10 * std::log10(signal / noise);
}

TEST(quantize, every_granularity_has_the_scales_of_its_own_tiles) {
  const MatrixShape shape{13, 37};
  const std::vector<float> x = normals(shape.n_elems(), 3.0f);
  for (const char* name : {"tensor", "row", "1x16", "1x128", "8x8", "128x128"}) {
    const Granularity g = granularity_from_name(name);
    EXPECT_EQ(granularity_name(g), name);
    for (const Dtype format : kElements) {
      const Quantizer q = linear_quantizer(format, g);
      const Result r = run(q, shape, x);
      const MatrixShape grid = scale_shape(shape, g);
      for (int64_t row = 0; row < shape.rows; ++row) {
        for (int64_t col = 0; col < shape.cols; ++col) {
          const bool tensor = g.kind == Granularity::Kind::tensor;
          const int64_t tile_rows = tensor ? 13 : g.kind == Granularity::Kind::block ? g.size : 1;
          const int64_t tile_cols = tensor || g.kind == Granularity::Kind::row ? 37 : g.size;
          const int64_t tr = row / tile_rows, tc = col / tile_cols;
          float amax = 0;
          for (int64_t i = tr * tile_rows; i < std::min<int64_t>((tr + 1) * tile_rows, 13); ++i) {
            for (int64_t j = tc * tile_cols; j < std::min<int64_t>((tc + 1) * tile_cols, 37); ++j) {
              amax = std::max(amax, std::fabs(x[i * 37 + j]));
            }
          }
          const float scale = r.scales[tr * grid.cols + tc];
          EXPECT_NEAR(scale, amax / q.amax_target, amax / q.amax_target * 0x1p-8);
          const size_t at = row * 37 + col;
          EXPECT_EQ(r.codes[at], encode(format, x[at] * (1.0f / scale)));
          EXPECT_EQ(r.back[at], decode(format, r.codes[at]) * scale);
        }
      }
    }
  }
}

TEST(quantize, what_is_finite_decodes_to_something_finite) {
  for (const Dtype format : kElements) {
    for (const char* name : {"tensor", "row", "1x16"}) {
      for (const float target :
           {format_row(format).amax_target, format_row(format).gradient_amax_target}) {
        Quantizer q = linear_quantizer(format, granularity_from_name(name));
        if (target > 0) q.amax_target = target;
        for (uint32_t below = 0; below < 400; ++below) {
          const float amax = float_of(kF32Inf - 1 - below * 0x100u);
          const Result r = run(q, {1, 2}, {-amax, amax / 3});
          EXPECT_TRUE(std::isfinite(r.back[0])) << dtype_name(format) << " " << name << " " << amax;
          EXPECT_NEAR(r.back[0] / amax, -1.0, 0.07) << dtype_name(format) << " " << name;
        }
      }
    }
  }
}

TEST(quantize, sizes_near_the_end_of_integers_give_one_group) {
  const std::vector<float> x = {1, -2, 3, 4};
  for (const char* name : {"1x9223372036854775807", "9223372036854775807x9223372036854775807"}) {
    EXPECT_THROW(granularity_from_name(name), Error) << name;
  }
  for (const auto kind : {Granularity::Kind::group, Granularity::Kind::block}) {
    for (const int64_t size : {INT64_MAX, INT64_MAX - 127, int64_t{1} << 62}) {
      const Result r = run(linear_quantizer(Dtype::e4m3, {kind, size}), {2, 2}, x);
      EXPECT_EQ(r.scales.size(), kind == Granularity::Kind::group ? 2u : 1u);
      EXPECT_NEAR(r.back[3], 4.0f, 4.0f * 0x1p-8f);  // a group has a BF16 scale
    }
  }
}

TEST(quantize, a_side_without_end_beside_an_empty_one_takes_no_time) {
  const int64_t endless = int64_t{1} << 62;
  for (const char* name : {"tensor", "1x16", "128x128"}) {
    const Quantizer q = linear_quantizer(Dtype::e4m3, granularity_from_name(name));
    const Result r = run(q, {endless, 0}, {});
    for (const float scale : r.scales) EXPECT_EQ(scale, 1.0f);
  }
  EXPECT_TRUE(run(linear_quantizer(Dtype::e4m3, {Granularity::Kind::row, 0}), {0, endless}, {})
                  .scales.empty());
}

TEST(quantize, group_scales_are_bf16_and_tensor_scales_f32) {
  const std::vector<float> x = normals(64, 1.0f);
  const Result groups =
      run(linear_quantizer(Dtype::e4m3, granularity_from_name("1x16")), {1, 64}, x);
  for (const float s : groups.scales) EXPECT_EQ(f32_from_bf16(bf16_from_f32(s)), s);
  const Result tensor = run(linear_quantizer(Dtype::e4m3, {Granularity::Kind::tensor}), {1, 64}, x);
  EXPECT_EQ(tensor.scales[0], amax(x).value * (1.0f / 448.0f));
}

TEST(quantize, zero_group_gives_unit_scale_and_codes_of_zero) {
  const std::vector<float> x(20, -0.0f);
  for (const Dtype format : kElements) {
    const Result r = run(linear_quantizer(format, granularity_from_name("1x16")), {1, 20}, x);
    for (const float s : r.scales) EXPECT_EQ(s, 1.0f);
    for (const float v : r.back) EXPECT_EQ(v, 0.0f);
  }
}

TEST(quantize, tiny_and_huge_groups_keep_finite_scales) {
  for (const float value : {0x1p-149f, 0x1p-120f, std::numeric_limits<float>::max()}) {
    const std::vector<float> x(16, value);
    for (const Dtype format : kElements) {
      const Result r = run(linear_quantizer(format, granularity_from_name("1x16")), {1, 16}, x);
      EXPECT_GE(r.scales[0], 0x1p-100f);
      EXPECT_TRUE(std::isfinite(r.scales[0]));
      for (const float v : r.back) EXPECT_FALSE(std::isnan(v));
    }
  }
}

TEST(quantize, nonfinite_values_set_the_flag_and_stay_in_their_place) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {inf, -inf, std::nanf("")}) {
    std::vector<float> x(32, 2.0f);
    x[5] = bad;
    const Result r = run(linear_quantizer(Dtype::e4m3, granularity_from_name("1x16")), {2, 16}, x);
    EXPECT_TRUE(r.nonfinite);
    EXPECT_EQ(std::isnan(r.back[5]), std::isnan(bad));
    EXPECT_EQ(r.scales[0], r.scales[1]);
    EXPECT_EQ(r.back[4], r.back[20]);
  }
  EXPECT_FALSE(run(linear_quantizer(Dtype::e4m3, {Granularity::Kind::tensor}), {2, 16},
                   std::vector<float>(32, 1.0f))
                   .nonfinite);
}

TEST(quantize, power_of_two_scale_puts_amax_at_or_below_the_target) {
  for (const float amax : {15.0f, 15.0001f, 14.9f, 0.3f, 1e-20f, 1e20f}) {
    Quantizer q = linear_quantizer(Dtype::hif8, {Granularity::Kind::tensor});
    q.rule = ScaleRule::power_ceil;
    const float scale = scale_from_amax(q, amax);
    EXPECT_EQ(std::exp2(std::round(std::log2(scale))), scale);
    EXPECT_LE(amax / scale, 15.0f);
    EXPECT_GT(amax / scale, 7.5f);
  }
}

TEST(quantize, mx_scales_follow_their_rule) {
  const Quantizer ceil = mx_quantizer(Dtype::e4m3),
                  floor = mx_quantizer(Dtype::e4m3, ScaleRule::mx_floor);
  EXPECT_EQ(scale_from_amax(ceil, 448.0f), 1.0f);
  EXPECT_EQ(scale_from_amax(ceil, 449.0f), 2.0f);
  EXPECT_EQ(scale_from_amax(floor, 511.0f), 1.0f);  // clips to 448
  EXPECT_EQ(scale_from_amax(floor, 512.0f), 2.0f);
  EXPECT_EQ(scale_from_amax(ceil, 0.0f), 0x1p-127f);
  EXPECT_EQ(scale_from_amax(ceil, 0x1p-149f), 0x1p-127f);
  EXPECT_EQ(scale_from_amax(mx_quantizer(Dtype::e5m2, ScaleRule::mx_floor), 0x1p15f), 1.0f);
  const std::vector<float> x = normals(1 << 16, 1.0f);
  EXPECT_NEAR(snr_db(x, run(ceil, {256, 256}, x).back), 31.53, 0.1);
  EXPECT_NEAR(snr_db(x, run(floor, {256, 256}, x).back), 30.65, 0.1);
}

TEST(quantize, nan_scale_makes_its_group_nan) {
  std::vector<float> back(32);
  const std::vector<uint8_t> codes(32, 0x38);
  dequantize(mx_quantizer(Dtype::e4m3), {1, 32}, codes, std::vector<float>{std::nanf("")}, back);
  for (const float v : back) EXPECT_TRUE(std::isnan(v));
}

// The scaled schemes of docs/numerics.md on Gaussian data.
TEST(quantize, signal_to_noise_of_the_schemes_is_as_expected) {
  const std::vector<float> x = normals(1 << 20, 1.0f);
  struct Case {
    Dtype format;
    const char* granularity;
    double db;
  };
  for (const Case& c : {Case{Dtype::e4m3, "tensor", 31.55}, Case{Dtype::e5m2, "tensor", 25.57},
                        Case{Dtype::hif8, "tensor", 31.57}, Case{Dtype::e4m3, "1x128", 31.80},
                        Case{Dtype::de8s, "1x256", 39.34}}) {
    const Quantizer q = linear_quantizer(c.format, granularity_from_name(c.granularity));
    EXPECT_NEAR(snr_db(x, run(q, {1024, 1024}, x).back), c.db, 0.06) << dtype_name(c.format);
  }
}

TEST(quantize, wrong_arguments_are_errors) {
  std::vector<float> x(16), scales(1);
  std::vector<uint8_t> codes(16);
  Quantizer q = linear_quantizer(Dtype::e4m3, {Granularity::Kind::tensor});
  EXPECT_THROW(quantize(q, {3, 5}, x, codes, scales), Error);
  EXPECT_THROW(quantize(q, {4, 4}, x, codes, std::span<float>()), Error);
  q.scale_type = Dtype::e8m0;
  EXPECT_THROW(quantize(q, {4, 4}, x, codes, scales), Error);
  EXPECT_THROW(quantize(linear_quantizer(Dtype::bf16, {Granularity::Kind::tensor}), {4, 4}, x,
                        codes, scales),
               Error);
  for (const char* name : {"", "1x", "x16", "1x0", "2x3", "1x16x", "column", "1x-4"}) {
    EXPECT_THROW(granularity_from_name(name), Error) << name;
  }
  EXPECT_THROW(scale_shape({4, 4}, {Granularity::Kind::group, 0}), Error);
}

}  // namespace
}  // namespace octet::formats_quantize_test
