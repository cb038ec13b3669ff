#include "math/expansion.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "formats/quantize.h"

namespace octet::expansion {
namespace {

constexpr Dtype kElements[] = {Dtype::e4m3, Dtype::e5m2, Dtype::hif8, Dtype::de8s, Dtype::de8u};
constexpr Moment kMoments[] = {Moment::first, Moment::second};
const RandomStream kRandom{.name = name_hash("expansion")};

struct Result {
  std::vector<uint8_t> codes;
  std::vector<uint32_t> meta;
  std::vector<float> back;
  bool nonfinite = false;
};

Result run(const ExpandOptions& options, const std::vector<float>& x) {
  Result r;
  r.codes.assign(x.size(), 0xA5);
  r.meta.assign(expand_groups(std::ssize(x), options.group), 0xA5A5A5A5u);
  r.back.assign(x.size(), -7.0f);
  r.nonfinite = expand_quantize(options, x, r.codes, r.meta);
  expand_dequantize(options, r.codes, r.meta, r.back);
  return r;
}

// Magnitudes over `octaves` octaves, both signs unless the format has none.
std::vector<float> wide(int n, double octaves, bool is_signed) {
  std::vector<float> x(n);
  for (int i = 0; i < n; ++i) {
    const double magnitude = std::exp2(-octaves * kRandom.uniform(2 * i));
    const bool negative = is_signed && (kRandom.bits(2 * i + 1) & 1u) != 0;
    x[i] = static_cast<float>(negative ? -magnitude : magnitude);
  }
  return x;
}

// Natural numbers of any size: enough to compare powers.
class Natural {
 public:
  explicit Natural(uint64_t value)
      : limbs_{static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)} {}
  void multiply(uint64_t factor) {
    Natural high = *this;
    scale(static_cast<uint32_t>(factor));
    high.scale(static_cast<uint32_t>(factor >> 32));
    high.limbs_.insert(high.limbs_.begin(), 0u);
    add(high);
  }
  void shift(int bits) {
    limbs_.insert(limbs_.begin(), static_cast<size_t>(bits / 32), 0u);
    scale(1u << (bits % 32));
  }
  bool operator<=(const Natural& other) const {
    const size_t n = std::max(limbs_.size(), other.limbs_.size());
    for (size_t i = n; i-- > 0;) {
      const uint32_t a = i < limbs_.size() ? limbs_[i] : 0,
                     b = i < other.limbs_.size() ? other.limbs_[i] : 0;
      if (a != b) return a < b;
    }
    return true;
  }

 private:
  void scale(uint32_t factor) {
    uint64_t carry = 0;
    for (uint32_t& limb : limbs_) {
      carry += static_cast<uint64_t>(limb) * factor;
      limb = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    limbs_.push_back(static_cast<uint32_t>(carry));
  }
  void add(const Natural& other) {
    limbs_.resize(std::max(limbs_.size(), other.limbs_.size()) + 1);
    uint64_t carry = 0;
    for (size_t i = 0; i < limbs_.size(); ++i) {
      carry += static_cast<uint64_t>(limbs_[i]) + (i < other.limbs_.size() ? other.limbs_[i] : 0u);
      limbs_[i] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
  }
  std::vector<uint32_t> limbs_;
};

// r^j <= ratio^16, in whole numbers.
bool within(const Range& r, int j, double ratio) {
  int ratio_exponent = 0;
  const uint64_t ratio_bits =
      static_cast<uint64_t>(std::ldexp(std::frexp(ratio, &ratio_exponent), 53));
  const uint64_t significand = static_cast<uint64_t>(r.significand * 0x1p23f);
  Natural left(1), right(1);
  for (int i = 0; i < j; ++i) left.multiply(significand);
  for (int i = 0; i < 16; ++i) right.multiply(ratio_bits);
  const int left_shift = j * (r.exponent - 23), right_shift = 16 * (ratio_exponent - 53);
  const int common = std::min(left_shift, right_shift);
  left.shift(left_shift - common);
  right.shift(right_shift - common);
  return left <= right;
}

double ratio_of(Dtype format, Moment moment) {
  const FormatRow row = find_format(format);
  return moment == Moment::first ? row.expansion_ratio_m : row.expansion_ratio_v;
}

TEST(expansion, limits_are_the_largest_f32_below_the_power_in_whole_numbers) {
  for (const Dtype format : kElements) {
    for (const Moment moment : kMoments) {
      const RangeThresholds& table = find_expansion(format, moment).thresholds;
      for (int j = 1; j <= kMaxK16; ++j) {
        const Range limit = table.limit[j - 1];
        Range next{limit.exponent, std::nextafter(limit.significand, 4.0f)};
        if (next.significand >= 2.0f) next = {limit.exponent + 1, 1.0f};
        ASSERT_TRUE(within(limit, j, ratio_of(format, moment))) << dtype_name(format) << " " << j;
        ASSERT_FALSE(within(next, j, ratio_of(format, moment))) << dtype_name(format) << " " << j;
      }
    }
  }
}

TEST(expansion, k_is_the_largest_sixteenth_within_the_format) {
  for (const Dtype format : kElements) {
    const RangeThresholds& table = find_expansion(format, Moment::second).thresholds;
    for (int i = 0; i < 2000; ++i) {
      const float amin = std::ldexp(1.0f + kRandom.uniform(3 * i),
                                    -static_cast<int>(kRandom.bits(3 * i + 1) % 120));
      const float amax = amin * (1.0f + 1e4f * kRandom.uniform(3 * i + 2));
      const Range r = range_of(amax, amin);
      int want = 1;
      for (int j = 1; j <= kMaxK16; ++j) {
        if (r <= table.limit[j - 1]) want = j;
      }
      ASSERT_EQ(choose_k16(r, table), want);
      const double k =
          std::log(ratio_of(format, Moment::second)) / std::log(static_cast<double>(amax) / amin);
      EXPECT_EQ(want, std::max(1, std::min(255, static_cast<int>(std::floor(16 * k + 1e-9)))));
    }
  }
}

TEST(expansion, the_range_neither_overflows_nor_loses_subnormals) {
  const Range r = range_of(std::numeric_limits<float>::max(), 0x1p-149f);
  EXPECT_EQ(r.exponent, 276);
  EXPECT_NEAR(r.significand, 2.0f, 1e-6f);
  EXPECT_EQ(choose_k16(r, find_expansion(Dtype::hif8, Moment::second).thresholds), 1);
  const Range below_one = range_of(4.0f, 3.0f);
  EXPECT_EQ(below_one.exponent, 0);
  EXPECT_EQ(below_one.significand, 4.0f / 3.0f);
}

TEST(expansion, metadata_hold_amax_rounded_up_to_24_bits) {
  for (int i = 0; i < 10000; ++i) {
    const float amax = float_of(0x0D800000u + kRandom.bits(i) % 0x72000000u);  // 2^-100 .. max
    const float stored = meta_amax(expansion_amax24(amax) << 8);
    EXPECT_TRUE(is_finite(stored));
    EXPECT_GE(stored, std::min(amax, 0x1.FFFFp127f));
    EXPECT_NEAR(stored / amax, 1.0, 0x1p-16);
  }
  EXPECT_EQ(meta_amax(expansion_amax24(std::numeric_limits<float>::max()) << 8), 0x1.FFFFp127f);
}

TEST(expansion, zero_and_vanishing_groups_give_zero_codes_metadata_and_values) {
  for (const Dtype format : kElements) {
    for (const float value : {0.0f, -0.0f, 0x1.FFFFFEp-101f, 0x1p-149f}) {
      const Result r = run({.format = format, .group = 8}, std::vector<float>(19, value));
      for (const uint32_t m : r.meta) EXPECT_EQ(m, 0u);
      for (const uint8_t c : r.codes) EXPECT_EQ(c, 0u);
      for (const float v : r.back) EXPECT_EQ(bits_of(v), 0u);
    }
  }
}

TEST(expansion, constant_groups_keep_value_and_sign) {
  for (const Dtype format : kElements) {
    for (const MathMode math : {MathMode::exact, MathMode::fast}) {
      for (const float value : {1.0f, -0.7531f, 3e-30f, -1e38f, 0x1p-100f}) {
        if (value < 0 && format == Dtype::de8u) continue;
        const bool exact = (bits_of(value) & 127u) == 0;
        const Result r = run({.format = format, .math = math}, {value});
        EXPECT_EQ(meta_k16(r.meta[0]), 255);
        // DE8's most negative entry is -0.993: its sixteenth power of 1/k brings it within 0.05 %.
        EXPECT_NEAR(r.back[0] / value, 1.0, 0.004) << dtype_name(format) << " " << value;
        const bool at_top = exact && (value > 0 || format != Dtype::de8s);
        EXPECT_EQ(r.back[0], at_top ? value : r.back[0]);
      }
    }
  }
}

TEST(expansion, zeros_stay_zero_and_do_not_count_in_the_range) {
  for (const Dtype format : kElements) {
    std::vector<float> x = wide(128, 3, false);
    const uint32_t meta = run({.format = format}, x).meta[0];
    x[17] = 0.0f, x[90] = -0.0f;
    const Result r = run({.format = format}, x);
    EXPECT_EQ(meta_k16(r.meta[0]), meta_k16(meta));
    EXPECT_EQ(bits_of(r.back[17]), 0u);
    EXPECT_EQ(bits_of(r.back[90]), 0u);
  }
}

TEST(expansion, nothing_nonzero_vanishes_however_wide_the_group) {
  for (const Dtype format : kElements) {
    const bool is_signed = find_format(format).is_signed;
    for (const Moment moment : kMoments) {
      for (const MathMode math : {MathMode::exact, MathMode::fast}) {
        for (const double octaves : {1.0, 17.9, 40.0, 140.0}) {
          std::vector<float> x = wide(128, octaves, is_signed);
          if (octaves > 100) x[3] = 3e38f, x[4] = 0x1p-149f;
          const Result r = run({.format = format, .moment = moment, .math = math}, x);
          EXPECT_TRUE(octaves < 30 || meta_k16(r.meta[0]) < 16);
          for (size_t i = 0; i < x.size(); ++i) {
            EXPECT_NE(r.back[i], 0.0f) << dtype_name(format) << " " << x[i];
            EXPECT_EQ(std::signbit(r.back[i]), std::signbit(x[i]));
            EXPECT_TRUE(std::isfinite(r.back[i]));
          }
        }
      }
    }
  }
}

TEST(expansion, narrow_groups_gain_precision) {
  const std::vector<float> x = wide(4096, 2.0, true);
  const Quantizer linear = linear_quantizer(Dtype::e4m3, granularity_from_name("1x128"));
  std::vector<float> scales(32), plain(x.size());
  std::vector<uint8_t> codes(x.size());
  quantize(linear, {1, 4096}, x, codes, scales);
  dequantize(linear, {1, 4096}, codes, scales, plain);
  const Result r = run({.format = Dtype::e4m3}, x);
  double with = 0, without = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    with += std::pow(r.back[i] - x[i], 2);
    without += std::pow(plain[i] - x[i], 2);
  }
  EXPECT_GE(meta_k16(r.meta[0]), 8 * 16);  // 17.8 octaves for 2
  EXPECT_LT(with, without / 10) << without / with;
}

TEST(expansion, every_code_decodes_as_the_formula_says) {
  const uint32_t meta = expansion_amax24(3.25f) << 8 | 37;
  for (uint32_t code = 0; code < 256; ++code) {
    const double q = decode(Dtype::e4m3, code);
    const float got = expand_decode<Dtype::e4m3, MathMode::exact>(code, meta);
    if (std::isnan(q)) {
      EXPECT_TRUE(std::isnan(got));
      continue;
    }
    const double want = std::copysign(std::pow(std::fabs(q) / 448, 16.0 / 37) * 3.25, q);
    EXPECT_FLOAT_EQ(got, static_cast<float>(want));
  }
}

TEST(expansion, stored_metadata_make_requantization_a_fixed_point_of_codes) {
  for (const Dtype format : kElements) {
    const std::vector<float> x = wide(512, 9.0, find_format(format).is_signed);
    const Result r = run({.format = format}, x);
    visit_format(format, [&]<Dtype D>() {
      if constexpr (format_row(D).expansion_ratio_m != 0) {
        for (size_t i = 0; i < x.size(); ++i) {
          EXPECT_EQ((expand_encode<D, MathMode::exact>(r.back[i], r.meta[i / 128])), r.codes[i]);
        }
      }
    });
  }
}

TEST(expansion, fast_powers_agree_in_999_codes_of_1000_and_else_by_one) {
  constexpr int kCount = 1 << 17;
  for (const Dtype format : kElements) {
    for (const double octaves : {1.5, 8.0, 25.0}) {
      const std::vector<float> x = wide(kCount, octaves, find_format(format).is_signed);
      const Result exact = run({.format = format, .math = MathMode::exact}, x);
      const Result fast = run({.format = format, .math = MathMode::fast}, x);
      EXPECT_EQ(exact.meta, fast.meta);
      int differ = 0;
      for (int i = 0; i < kCount; ++i) {
        differ += exact.codes[i] != fast.codes[i];
        if (exact.codes[i] == fast.codes[i]) {
          EXPECT_NEAR(fast.back[i] / exact.back[i], 1.0, 1e-5);
        } else if (format != Dtype::hif8) {
          EXPECT_EQ(std::abs(exact.codes[i] - fast.codes[i]), 1);
        }
      }
      EXPECT_LE(differ, kCount / 1000) << dtype_name(format) << " " << octaves;
    }
  }
}

// Adam's v, quantized after every step: amax in 24 bits lets it decay, where 16 would not.
TEST(expansion, moving_average_of_squares_keeps_its_size) {
  struct Case {
    float beta;
    double most;
  };
  constexpr int kCount = 256, kSteps = 3000;
  for (const Case& c : {Case{0.95f, 0.02}, Case{0.99f, 0.08}, Case{0.999f, 0.20}}) {
    std::vector<float> v(kCount, 0.0f), exact(kCount, 0.0f);
    for (int step = 0; step < kSteps; ++step) {
      for (int i = 0; i < kCount; ++i) {
        const float g = kRandom.normal(step * kCount + i) * std::exp(0.3f * kRandom.normal(i));
        v[i] = c.beta * v[i] + (1 - c.beta) * g * g;
        exact[i] = c.beta * exact[i] + (1 - c.beta) * g * g;
      }
      v = run({.format = Dtype::e4m3, .moment = Moment::second}, v).back;
    }
    double bias = 0;
    for (int i = 0; i < kCount; ++i) bias += (v[i] / exact[i] - 1.0) / kCount;
    EXPECT_LE(std::fabs(bias), c.most) << c.beta;
  }
}

TEST(expansion, nonfinite_values_set_the_flag_and_leave_the_group_alone) {
  std::vector<float> x = wide(128, 5.0, true);
  const Result clean = run({}, x);
  EXPECT_FALSE(clean.nonfinite);
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    // The replaced member is neither the largest nor the smallest.
    size_t at = 0;
    while (std::fabs(x[at]) < 0.1f || std::fabs(x[at]) > 0.5f) ++at;
    std::vector<float> y = x;
    y[at] = bad;
    const Result r = run({}, y);
    EXPECT_TRUE(r.nonfinite);
    EXPECT_EQ(r.meta, clean.meta);
    EXPECT_EQ(r.back[at == 0 ? 1 : at - 1], clean.back[at == 0 ? 1 : at - 1]);
  }
}

TEST(expansion, wrong_arguments_and_corrupt_metadata_are_errors) {
  std::vector<float> x(10, 1.0f);
  std::vector<uint8_t> codes(10);
  std::vector<uint32_t> meta(2);
  EXPECT_THROW(expand_quantize({.format = Dtype::bf16, .group = 5}, x, codes, meta), Error);
  EXPECT_THROW(expand_quantize({.format = Dtype::f32, .group = 5}, x, codes, meta), Error);
  EXPECT_THROW(expand_quantize({.group = 4}, x, codes, meta), Error);
  EXPECT_THROW(expand_quantize({.group = 0}, x, codes, meta), Error);
  EXPECT_THROW(find_expansion(Dtype::e8m0, Moment::first), Error);
  for (const uint32_t bad : {0xFF000010u, 0x3F800000u, 0x00000010u, 0xFFFFFF10u}) {
    meta = {0u, bad};
    EXPECT_THROW(expand_dequantize({.group = 5}, codes, meta, x), Error) << bad;
  }
}

TEST(powers, are_within_two_to_the_minus_50) {
  for (int i = 0; i < 200000; ++i) {
    const double x =
        std::exp2(300.0 * (kRandom.uniform(i) - 0.5)) * (1.0 + kRandom.uniform(i + 7) * 1e-3);
    EXPECT_NEAR(log2_exact(x), std::log2(x), std::max(1.0, std::fabs(std::log2(x))) * 0x1p-50);
    const double y = 1000.0 * (kRandom.uniform(i + 3) - 0.5);
    EXPECT_NEAR(exp2_exact(y) / std::exp2(y), 1.0, 0x1p-49);
  }
  for (int e = -140; e <= 127; ++e) {
    EXPECT_EQ(log2_exact(std::ldexp(1.0, e)), e);
    EXPECT_EQ(exp2_exact(e), std::ldexp(1.0, e));
  }
}

// Bits written down once: any machine or compiler that changes them breaks checkpoints with `math:
// exact`.
TEST(powers, have_the_same_bits_everywhere) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (int i = 1; i < 4096; ++i) {
    const double y = log2_exact(i * 0.0371) * 1.3;
    for (const double v : {y, exp2_exact(y)}) {
      hash = (hash ^ __builtin_bit_cast(uint64_t, v)) * 0x100000001b3ull;
    }
  }
  EXPECT_EQ(hash, 3490523119321069469u);
}

}  // namespace
}  // namespace octet::expansion
