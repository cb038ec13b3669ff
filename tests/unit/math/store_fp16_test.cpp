#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/philox.h"
#include "formats/codec.h"
#include "math/master.h"

namespace octet::math_store_fp16_test {
namespace {

// Magnitudes from far below the smallest FP16 number to above the largest, both signs.
TEST(StochasticFp16, has_the_bits_of_the_encoder) {
  const RandomStream random{.name = name_hash("store_fp16")};
  for (uint64_t i = 0; i < 200000; ++i) {
    const uint32_t word = random.bits(3 * i), mantissa = random.bits(3 * i + 1);
    const int exponent = static_cast<int>(random.bits(3 * i + 2) % 52) - 34;
    const auto x = std::ldexp(1.0f + static_cast<float>(mantissa >> 9) * 0x1p-23f, exponent);
    for (const float value : {x, -x}) {
      ASSERT_EQ(stochastic_fp16(value, word),
                encode(Dtype::fp16, value, Rounding::sr, {.random_bits = word}))
          << value << " " << word;
    }
  }
}

TEST(StochasticFp16, moves_no_value_that_fp16_holds_and_saturates) {
  for (uint32_t code = 0; code <= 0x7BFF; ++code) {
    const float x = decode(Dtype::fp16, code);
    ASSERT_EQ(stochastic_fp16(x, 0xFFFFFFFFu), code);
    ASSERT_EQ(stochastic_fp16(-x, 0xFFFFFFFFu), code | 0x8000u);
  }
  EXPECT_EQ(stochastic_fp16(std::numeric_limits<float>::infinity(), 0), 0x7BFF);
  EXPECT_EQ(stochastic_fp16(-1e30f, 7), 0xFBFF);
  EXPECT_EQ(stochastic_fp16(std::numeric_limits<float>::quiet_NaN(), 7), 0x7FFF);
}

TEST(StochasticFp16, is_right_in_the_mean) {
  const RandomStream random{.name = name_hash("mean")};
  for (const float x : {1.0003f, 0x1.4p-24f, 0x1p-27f, 3.3e-5f}) {
    double sum = 0;
    constexpr int kDraws = 40000;
    for (uint64_t i = 0; i < kDraws; ++i)
      sum += static_cast<double>(decode(Dtype::fp16, stochastic_fp16(x, random.bits(i))));
    const double step = x < 0x1p-14f ? 0x1p-24 : std::ldexp(1.0, std::ilogb(x) - 10);
    EXPECT_NEAR(sum / kDraws, static_cast<double>(x), 4 * 0.5 * step / std::sqrt(kDraws)) << x;
  }
}

TEST(StoreFp16, keeps_what_is_positive_where_it_is_asked_to) {
  EXPECT_EQ(store_fp16(1e-30f, 0, true), 1);
  EXPECT_EQ(store_fp16(1e-30f, 0, false), 0);
  EXPECT_EQ(store_fp16(0.0f, 0, true), 0);
  EXPECT_EQ(store_fp16(-1e-30f, 0, true), 0x8000);
}

}  // namespace
}  // namespace octet::math_store_fp16_test
