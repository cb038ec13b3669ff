// The tables of expanded codes against the powers of math/expansion.h, for every exponent k.
#include "backends/cpu/adamw/expanded_codes.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "math/expansion.h"

namespace octet::cpu {
namespace {

constexpr size_t kGroup = 4096;
constexpr float kAmax[] = {0x1p-90f, 3.1e-6f, 1.0f, 1.9999f};

// Values from amax down to those that the smallest code stands for, of both signs, and a zero.
std::vector<float> values_below(float amax, double log2_range) {
  std::vector<float> x(kGroup);
  for (size_t i = 0; i < kGroup; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(kGroup - 1);
    const auto size = static_cast<float>(amax * std::exp2(-share * log2_range));
    x[i] = i % 2 == 0 ? size : -size;
  }
  x[77] = 0.0f;
  return x;
}

template <Dtype D>
void codes_agree_with_exact_powers() {
  const ExpandedCodes format = expanded_codes(D);
  if (format.encode == nullptr) GTEST_SKIP() << "this machine has no registers of 16 floats";
  int64_t n_unequal = 0, n_all = 0;
  for (int k16 = 3; k16 <= kMaxK16; ++k16) {
    for (const float amax : kAmax) {
      const uint32_t meta = (expansion_amax24(amax) << 8) | static_cast<uint32_t>(k16);
      const double log2_range = std::min(34.0, 18.5 * 16 / k16);
      const std::vector<float> x = values_below(amax, log2_range);
      std::vector<uint8_t> codes(kGroup);
      const EncodeJob job{meta, x.data(), codes.data()};
      format.encode(format, {&job, 1}, kGroup);
      for (size_t i = 0; i < kGroup; ++i) {
        const uint32_t exact = expand_encode<D, MathMode::exact>(x[i], meta);
        ++n_all;
        if (codes[i] == exact) continue;
        ++n_unequal;
        ASSERT_LE(std::abs(int{codes[i]} - static_cast<int>(exact)), 1) << k16 << " " << x[i];
      }
      ASSERT_EQ(codes[77], 0);
      ASSERT_EQ(codes[0], (expand_encode<D, MathMode::exact>(amax, meta))) << k16;
    }
  }
  const double share = static_cast<double>(n_unequal) / static_cast<double>(n_all);
  EXPECT_LE(share, 0.0005);
}

template <Dtype D>
void values_agree_with_exact_powers() {
  const ExpandedCodes format = expanded_codes(D);
  if (format.decode == nullptr) GTEST_SKIP() << "this machine has no registers of 16 floats";
  std::array<uint8_t, 256> codes;
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  std::array<float, 256> x;
  for (int k16 = 3; k16 <= kMaxK16; ++k16) {
    for (const float amax : kAmax) {
      const uint32_t meta = (expansion_amax24(amax) << 8) | static_cast<uint32_t>(k16);
      if (format.rows[k16].log2_least + std::log2(amax) < -120) continue;
      const DecodeJob job{meta, codes.data(), x.data()};
      format.decode(format, {&job, 1}, x.size());
      for (uint32_t code = 0; code < 256; ++code) {
        if (!is_finite(decode<D>(code))) continue;
        const float exact = expand_decode<D, MathMode::exact>(code, meta);
        ASSERT_LE(std::abs(x[code] - exact), 2.5e-7f * std::abs(exact)) << k16 << " " << code;
      }
    }
  }
}

TEST(expanded_codes, of_e4m3_are_those_of_exact_powers_but_for_neighbours) {
  codes_agree_with_exact_powers<Dtype::e4m3>();
}
TEST(expanded_codes, of_e5m2_are_those_of_exact_powers_but_for_neighbours) {
  codes_agree_with_exact_powers<Dtype::e5m2>();
}
TEST(expanded_codes, of_e4m3_stand_for_the_exact_values) {
  values_agree_with_exact_powers<Dtype::e4m3>();
}
TEST(expanded_codes, of_e5m2_stand_for_the_exact_values) {
  values_agree_with_exact_powers<Dtype::e5m2>();
}
TEST(expanded_codes, of_other_formats_have_no_tables) {
  EXPECT_EQ(expanded_codes(Dtype::hif8).encode, nullptr);
  EXPECT_EQ(expanded_codes(Dtype::de8s).decode, nullptr);
}

}  // namespace
}  // namespace octet::cpu
