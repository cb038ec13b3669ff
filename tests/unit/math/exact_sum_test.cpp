// Sums whose bits depend on neither order nor grouping.
#include "math/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace octet::math_exact_sum_test {
namespace {

std::vector<double> spread_values(size_t n) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-290, 250);
  std::uniform_real_distribution<double> significand(1, 2);
  std::vector<double> values(n);
  for (double& x : values) x = std::ldexp(significand(random), static_cast<int>(exponent(random)));
  return values;
}

TEST(ExactSum, has_the_same_words_for_any_order_and_grouping) {
  std::vector<double> values = spread_values(5000);
  ExactSum forward, backward, left, right;
  for (const double x : values) forward.add(x);
  std::reverse(values.begin(), values.end());
  for (size_t i = 0; i < values.size(); ++i) {
    backward.add(values[i]);
    (i % 3 == 0 ? left : right).add(values[i]);
  }
  left.add(right.words());
  EXPECT_EQ(forward.value(), backward.value());
  EXPECT_EQ(forward.value(), left.value());
  EXPECT_EQ(forward.words(), left.words());
}

TEST(ExactSum, adds_what_a_double_would_lose) {
  ExactSum sum;
  sum.add(0x1p200);
  for (int i = 0; i < 1000; ++i) sum.add(0x1p-100);
  EXPECT_EQ(sum.value(), 0x1p200);
  ExactSum small;
  small.add(1);
  for (int i = 0; i < (1 << 20); ++i) small.add(0x1p-60);
  EXPECT_EQ(small.value(), 1 + 0x1p-40);
  ExactSum one;
  one.add(0x1.23456789abcdfp-200);
  EXPECT_EQ(one.value(), 0x1.23456789abcdfp-200);
  EXPECT_EQ(ExactSum().value(), 0);
}

TEST(ExactSum, of_squares_of_f32_at_both_ends_is_exact) {
  ExactSum sum;
  const double least = 0x1p-149, most = std::numeric_limits<float>::max();
  sum.add(least * least);
  EXPECT_EQ(sum.value(), 0x1p-298);
  for (int i = 0; i < 256; ++i) sum.add(most * most);
  EXPECT_NEAR(sum.value() / (256 * most * most), 1, 1e-15);
}

TEST(ExactSum, knows_what_is_not_finite) {
  ExactSum sum, other;
  sum.add(1);
  EXPECT_TRUE(sum.finite());
  other.add(std::numeric_limits<double>::infinity());
  sum.add(other.words());
  EXPECT_FALSE(sum.finite());
  EXPECT_TRUE(std::isnan(sum.value()));
}

}  // namespace
}  // namespace octet::math_exact_sum_test
