#include "math/moment.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "math/adamw.h"

namespace octet::math_adamw_moment_test {
namespace {

constexpr Dtype kFormats8[] = {Dtype::e4m3, Dtype::e5m2, Dtype::hif8, Dtype::de8s, Dtype::de8u};

// Every 8-bit coding of a moment; de8u holds v alone, de8s m alone.
std::vector<MomentCoding> all_codings() {
  std::vector<MomentCoding> codings;
  for (const Dtype dtype : kFormats8) {
    for (const Moment moment : {Moment::first, Moment::second}) {
      if (dtype == Dtype::de8s && moment == Moment::second) continue;
      if (dtype == Dtype::de8u && moment == Moment::first) continue;
      for (int flags = 0; flags < 8; ++flags) {
        codings.push_back({.dtype = dtype,
                           .moment = moment,
                           .expand = (flags & 1) != 0,
                           .stochastic = (flags & 2) != 0,
                           .math = flags & 4 ? MathMode::fast : MathMode::exact});
      }
    }
  }
  return codings;
}

std::string text(const MomentCoding& c) {
  return fmt::format("{} {} expand {} stochastic {} {}", dtype_name(c.dtype),
                     c.moment == Moment::first ? "m" : "v", c.expand, c.stochastic,
                     c.math == MathMode::exact ? "exact" : "fast");
}

struct Stored {
  std::vector<uint8_t> codes;
  uint32_t meta = 0;
  std::vector<float> back;
};

Stored store(const MomentCoding& coding, const std::vector<float>& x, uint32_t seed = 0) {
  Stored stored{std::vector<uint8_t>(x.size()), 0xDEADBEEF, std::vector<float>(x.size())};
  encode_moments(coding, x, {.random = {.name = 5, .seed = seed}}, stored.codes, stored.meta);
  decode_moments(coding, stored.meta, stored.codes, stored.back);
  return stored;
}

TEST(Moment, a_group_of_zeros_or_of_dust_is_zeros) {
  for (const MomentCoding& coding : all_codings()) {
    for (const float x : {0.0f, -0.0f, 0x1p-101f, 1e-40f}) {
      const Stored stored = store(coding, std::vector<float>(7, x));
      EXPECT_EQ(stored.meta, 0u) << text(coding);
      for (size_t i = 0; i < 7; ++i) {
        EXPECT_EQ(stored.codes[i], 0) << text(coding);
        EXPECT_EQ(stored.back[i], 0.0f) << text(coding);
      }
    }
  }
}

// Left out of amax it would be stored as the largest of the others, and the next step would go
// astray by its share of infinity.
TEST(Moment, what_overflowed_is_stored_as_the_largest_finite_value) {
  const float inf = float_of(kF32Inf), most = float_of(kF32Inf - 1);
  for (const MomentCoding& coding : all_codings()) {
    const std::vector<float> x = {1e-3f, inf, 0.0f, 2.0f, 1e20f};
    const Stored got = store(coding, x), want = store(coding, {1e-3f, most, 0.0f, 2.0f, 1e20f});
    EXPECT_EQ(got.codes, want.codes) << text(coding);
    EXPECT_EQ(got.meta, want.meta) << text(coding);
    EXPECT_GT(got.back[1], 0.9f * most) << text(coding);
    EXPECT_TRUE(is_finite(got.back[1])) << text(coding);
    if (coding.moment == Moment::second) continue;
    EXPECT_LT(store(coding, {-inf, 1.0f}).back[0], -0.9f * most) << text(coding);
  }
}

TEST(Moment, in_bf16_takes_the_largest_finite_value_of_its_sign_for_an_infinity) {
  const float most = float_of(kF32Inf - 1);
  for (const bool stochastic : {false, true}) {
    const MomentCoding coding{.dtype = Dtype::bf16, .stochastic = stochastic};
    for (const float x : {float_of(kF32Inf), most}) {
      EXPECT_EQ(moment_bf16(coding, x, 0xFFFFFFFFu), 0x7F7F);
      EXPECT_EQ(moment_bf16(coding, -x, 0xFFFFFFFFu), 0xFF7F);
    }
    EXPECT_TRUE(is_nan(f32_from_bf16(moment_bf16(coding, float_of(0x7FC00000u), 0))));
  }
}

TEST(Moment, a_constant_group_keeps_its_value_and_sign) {
  for (const MomentCoding& coding : all_codings()) {
    for (const float x : {1.5f, 1.2345678e-9f, -3.1e-5f, 7.7e20f}) {
      if (x < 0 && coding.moment == Moment::second) continue;
      const bool has_no_minus_one = x < 0 && coding.dtype == Dtype::de8s;
      for (const size_t n : {size_t{1}, size_t{128}}) {
        const Stored stored = store(coding, std::vector<float>(n, x));
        EXPECT_EQ(meta_k16(stored.meta), coding.expand ? 255 : 16) << text(coding);
        EXPECT_NEAR(stored.back[0] / x, 1.0, has_no_minus_one ? 0.01 : 0.004) << text(coding);
        if (x == 1.5f) {
          EXPECT_EQ(stored.back[0], x) << text(coding);
        }
      }
    }
  }
}

TEST(Moment, amax_is_right_on_average_where_codes_are_rounded_to_nearest_and_else_above) {
  constexpr int kSteps = 20000, kGroups = 5;
  for (MomentCoding coding : all_codings()) {
    if (coding.math == MathMode::exact) continue;
    for (const float amax : {1.00000465f, 1.9999963f, 3.1e-9f}) {
      double sum = 0;
      for (uint32_t step = 0; step < kSteps; ++step) {
        const AmaxRounding rounding = amax_rounding(coding, {.name = 5, .step = step});
        for (int64_t group = 0; group < kGroups; ++group) {
          const uint32_t meta = moment_meta(coding, {amax, amax}, rounding.up(128 * group));
          sum += static_cast<double>(meta_amax(meta)) / amax;
          if (coding.stochastic) {
            EXPECT_GE(meta_amax(meta), amax);
          }
        }
      }
      // A place of the 24 bits is up to 2^-16.
      const double off = sum / (kSteps * kGroups) - 1;
      if (!coding.stochastic) {
        EXPECT_NEAR(off, 0, 0x1p-16 / 64) << text(coding) << " " << amax;
      }
    }
  }
}

// The value of the smallest code, over the amax that was rounded, lies about the very range that
// chose k: counted as it is, it would lower k and itself with it in every other step.
TEST(Moment, the_smallest_of_a_group_stays_while_the_group_is_stored_again_and_again) {
  for (const MomentCoding& coding : all_codings()) {
    if (coding.stochastic || coding.math == MathMode::exact) continue;
    Stored stored = store(coding, {1.0f, 0.7f, 0.4f, 0.11f});
    const float share = stored.back[3] / stored.back[0];
    for (uint32_t seed = 0; seed < 2000; ++seed) {
      for (float& x : stored.back) x *= 0.9999f;
      stored = store(coding, stored.back, seed);
    }
    EXPECT_NEAR(stored.back[3] / stored.back[0] / share, 1, 1e-4) << text(coding);
    EXPECT_NEAR(stored.back[0], std::pow(0.9999, 2000), 3e-3) << text(coding);
  }
}

TEST(Moment, exact_zeros_stay_and_do_not_widen_the_range) {
  const std::vector<float> without = {0.5f, 0.25f, 1.0f}, with = {0.5f, 0, 0.25f, 1.0f, 0};
  for (const MomentCoding& coding : all_codings()) {
    const Stored a = store(coding, without), b = store(coding, with);
    EXPECT_EQ(a.meta, b.meta) << text(coding);
    EXPECT_EQ(b.back[1], 0.0f);
    EXPECT_EQ(b.back[4], 0.0f);
    EXPECT_NE(b.back[2], 0.0f);
  }
}

TEST(Moment, a_second_moment_never_dies_and_an_expanded_first_neither) {
  std::vector<float> x;
  for (int e = 0; e <= 60; ++e) x.push_back(std::ldexp(1.0f, -e));
  for (const MomentCoding& coding : all_codings()) {
    for (uint32_t seed = 0; seed < 4; ++seed) {
      const Stored stored = store(coding, x, seed);
      for (size_t i = 0; i < x.size(); ++i) {
        if (!keeps_nonzero(coding)) continue;
        EXPECT_GT(stored.back[i], 0.0f) << text(coding) << " " << i;
      }
      if (!coding.expand) continue;
      EXPECT_LT(meta_k16(stored.meta), 16) << text(coding);  // R > R_fmt
    }
  }
}

TEST(Moment, values_that_are_stored_exactly_never_move) {
  for (const MomentCoding& coding : all_codings()) {
    if (coding.expand) continue;
    Stored once = store(coding, {1.0f, 0.37f, 0.011f, 0.0021f});
    once.back[0] = 1.0f;
    for (uint32_t seed = 0; seed < 20; ++seed) {
      EXPECT_EQ(store(coding, once.back, seed).back, once.back) << text(coding);
    }
  }
}

TEST(Moment, stochastic_rounding_has_no_bias_with_and_without_expansion) {
  constexpr int kDraws = 4000;
  const std::vector<float> some = {1.0f, 0.7771f, 0.0331f, 0.00177f, 0.4242f};
  for (MomentCoding coding : all_codings()) {
    if (!coding.stochastic || coding.math == MathMode::exact) continue;
    std::vector<float> x = some;
    if (coding.moment == Moment::first) {
      for (size_t i = 1; i < x.size(); i += 2) x[i] = -x[i];
    }
    std::vector<double> sum(x.size()), square(x.size());
    std::vector<float> low = x, high = x;
    for (uint32_t seed = 0; seed < kDraws; ++seed) {
      const Stored stored = store(coding, x, seed);
      for (size_t i = 0; i < x.size(); ++i) {
        sum[i] += stored.back[i];
        square[i] += std::pow(static_cast<double>(stored.back[i]) - x[i], 2);
        low[i] = std::min(low[i], stored.back[i]);
        high[i] = std::max(high[i], stored.back[i]);
      }
    }
    for (size_t i = 0; i < x.size(); ++i) {
      const double sigma = std::sqrt(square[i] / kDraws / kDraws);
      EXPECT_LE(std::abs(sum[i] / kDraws - x[i]), 5 * sigma + 1e-6 * std::abs(x[i]))
          << text(coding) << " " << x[i];
      EXPECT_LE(low[i], x[i]);
      EXPECT_GE(high[i], x[i]);
    }
  }
}

TEST(Moment, bf16_rounds_to_nearest_or_without_bias_and_keeps_v_alive) {
  const MomentCoding near{.dtype = Dtype::bf16, .moment = Moment::second};
  EXPECT_EQ(moment_bf16(near, 1.0f + 0x1p-8f, 0), 0x3F80);  // a tie, to even
  EXPECT_EQ(moment_bf16(near, 1e-45f, 0), 1);
  EXPECT_EQ(moment_bf16(near, 0.0f, 0), 0);
  EXPECT_EQ(moment_bf16({.dtype = Dtype::bf16}, 1e-45f, 0), 0);
}

TEST(Master, a_stochastic_bf16_has_no_bias_and_moves_nothing_that_it_holds) {
  const RandomStream random{.name = 9};
  constexpr int kDraws = 1 << 16;
  for (const float x : {1.00123f, -0.0201f, 3e-39f, 6.5e37f}) {
    double sum = 0;
    for (int i = 0; i < kDraws; ++i) {
      sum += f32_from_bf16(stochastic_bf16(x, random.bits(static_cast<uint64_t>(i))));
    }
    EXPECT_NEAR(sum / kDraws / x, 1.0, 5 * 0x1p-8 / std::sqrt(kDraws)) << x;
    const float held = f32_from_bf16(bf16_from_f32(x));
    for (uint64_t i = 0; i < 100; ++i) {
      EXPECT_EQ(f32_from_bf16(stochastic_bf16(held, random.bits(i))), held);
    }
  }
  EXPECT_EQ(stochastic_bf16(INFINITY, 0xFFFFFFFFu), 0x7F80);
  EXPECT_EQ(stochastic_bf16(-INFINITY, 0xFFFFFFFFu), 0xFF80);
  EXPECT_EQ(stochastic_bf16(float_of(0x7F800001u), 0xFFFFFFFFu), 0x7FFF);
}

TEST(Adamw, the_three_draws_of_an_element_differ_and_depend_on_name_seed_and_step) {
  std::vector<uint32_t> words;
  for (const uint64_t name : {name_hash("a"), name_hash("b")}) {
    for (const uint32_t seed : {1u, 2u}) {
      for (const uint32_t step : {1u, 2u}) {
        for (const UpdateDraw draw : {UpdateDraw::weight, UpdateDraw::first, UpdateDraw::second}) {
          words.push_back(update_stream(name, seed, step, draw).bits(7));
        }
      }
    }
    words.push_back(RandomStream{.name = name, .seed = 1}.bits(7));
  }
  std::sort(words.begin(), words.end());
  EXPECT_EQ(std::unique(words.begin(), words.end()), words.end());
  EXPECT_EQ(update_stream(name_hash("a"), 3, 4, UpdateDraw::first).name, name_hash("a:m"));
}

// m / c1 and v / c2 of the first step are g and g^2, whatever the betas: 1 - b follows from them as
// they are given, not from their f32.
TEST(Adamw, first_step_is_as_long_as_the_rate_at_any_betas) {
  for (const double beta : {0.9, 0.999, 0.9999, 0.99999, 0.999999, 0.9999999}) {
    const AdamwConstants k{.beta1 = static_cast<float>(beta),
                           .beta2 = static_cast<float>(beta),
                           .rest1 = rest_of(beta),
                           .rest2 = rest_of(beta),
                           .eps = 0,
                           .weight_decay = 0,
                           .lr = 1,
                           .c1 = static_cast<float>(1 - beta),
                           .c2 = static_cast<float>(1 - beta),
                           .grad_scale = 1};
    EXPECT_NEAR(adamw_element(k, {0, 0, 0}, 0.75f).w, -1, 3e-7) << beta;
  }
}

// The moving average of squares that AdamW keeps, against f32, element by element. Nearest rounding
// lets v shrink or stick where a step moves it by less than a code; the metadata's 24 bits and the
// group's spread hold the bias in bounds. Stochastic rounding in decoded values takes it away.
// Mean over four groups of v / exact v - 1.
double bias_after(const MomentCoding& coding, float beta2, int steps) {
  constexpr size_t kGroup = 128, kGroups = 4;
  double sum = 0;
  for (uint32_t group = 0; group < kGroups; ++group) {
    const RandomStream scales{.name = name_hash("bias"), .seed = group};
    std::vector<float> v(kGroup), exact(kGroup), scale(kGroup);
    for (size_t i = 0; i < kGroup; ++i) scale[i] = 1e-3f * std::exp(0.5f * scales.normal(i));
    Stored stored{std::vector<uint8_t>(kGroup), 0, std::vector<float>(kGroup)};
    for (int t = 1; t <= steps; ++t) {
      const auto step = static_cast<uint32_t>(t);
      const RandomStream draw{.name = 31, .seed = group, .step = step};
      for (size_t i = 0; i < kGroup; ++i) {
        const float g = scale[i] * draw.normal(i);
        v[i] = beta2 * v[i] + ((1 - beta2) * g) * g;
        exact[i] = beta2 * exact[i] + ((1 - beta2) * g) * g;
      }
      const RandomStream random = update_stream(1, group, step, UpdateDraw::second);
      encode_moments(coding, v, {.random = random}, stored.codes, stored.meta);
      decode_moments(coding, stored.meta, stored.codes, v);
    }
    for (size_t i = 0; i < kGroup; ++i) sum += v[i] / exact[i] - 1;
  }
  return sum / (kGroup * kGroups);
}

TEST(MovingAverage, the_bias_of_v_stays_in_its_bounds_over_3000_steps) {
  struct Row {
    float beta2;
    double bound;
  };
  constexpr Row kRows[] = {{0.95f, 0.02}, {0.99f, 0.08}, {0.999f, 0.20}};
  for (const Row& row : kRows) {
    MomentCoding coding{.dtype = Dtype::e4m3, .moment = Moment::second, .expand = true};
    coding.math = MathMode::fast;
    const double nearest = bias_after(coding, row.beta2, 3000);
    coding.stochastic = true;
    const double stochastic = bias_after(coding, row.beta2, 3000);
    std::printf("[ bias of v ] b2 %.3f: e4m3+x nearest %+.2f %%, stochastic %+.2f %%\n",
                static_cast<double>(row.beta2), 100 * nearest, 100 * stochastic);
    EXPECT_LE(std::abs(nearest), row.bound);
    EXPECT_LE(std::abs(stochastic), 0.02);
  }
}

}  // namespace
}  // namespace octet::math_adamw_moment_test
