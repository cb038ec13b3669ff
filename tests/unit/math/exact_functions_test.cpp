// The functions that cards and the reference share: as close as they say, and what they give at the
// ends of their range. That a card has the same bits is shown by tests/gpu/prove.
#include "math/exact_functions.h"

#include <gtest/gtest.h>

#include <limits>
#include <numbers>

#include "base/philox.h"
#include "math/activation.h"

namespace octet::exact_functions_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kSteps = 200'000;

// The largest relative error of f from `exact` over [-bound, bound].
template <typename F, typename Exact>
double worst(float bound, const F& f, const Exact& exact) {
  double largest = 0;
  for (int i = 0; i <= kSteps; ++i) {
    const float x = bound * (2.0f * static_cast<float>(i) / kSteps - 1);
    const double want = exact(static_cast<double>(x));
    largest = std::max(largest, std::abs(f(x) - want) / want);
  }
  return largest;
}

TEST(ExactFunctions, exponentials_are_as_close_as_they_say) {
  const auto exact = [](double x) { return std::exp(x); };
  EXPECT_LT(worst(16, exp_exact, exact), 0x1p-22);
  EXPECT_LT(worst(87, exp_exact, exact), 0x1p-21);
  EXPECT_EQ(exp_exact(0), 1.0f);
  EXPECT_EQ(exp_exact(-87.4f), 0.0f);
  EXPECT_EQ(exp_exact(-kInf), 0.0f);
  EXPECT_TRUE(std::isnan(exp_exact(std::nanf(""))));
}

// Recorded results; the ends of the exponents' range.
TEST(ExactFunctions, powers_are_the_cards) {
  EXPECT_EQ(ex2_of_card(1.0f / 64), float_of(0x3F8164D2));
  EXPECT_EQ(ex2_of_card(17.0f / 64), float_of(0x3F99E046));
  EXPECT_EQ(ex2_of_card(74 + 63.0f / 64), float_of(0x64FD3E0D));
  EXPECT_EQ(ex2_of_card(-1 + 17.0f / 64), float_of(0x3F19E045));
  EXPECT_EQ(ex2_of_card(-126 + 63.0f / 64), float_of(0x00FD3E0B));
  EXPECT_EQ(ex2_of_card(-126), 0x1p-126f);
  EXPECT_EQ(ex2_of_card(-126 - 1.0f / 1024), 0.0f);
  EXPECT_EQ(ex2_of_card(-kInf), 0.0f);
  EXPECT_TRUE(std::isnan(ex2_of_card(std::nanf(""))));
}

TEST(ExactFunctions, logistics_and_gates_are_as_close_as_they_say) {
  const auto exact = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_LT(worst(87, logistic_exact, exact), 0x1p-21);
  EXPECT_EQ(logistic_exact(-87.4f), 0.0f);
  EXPECT_EQ(logistic_exact(-kInf), 0.0f);
  EXPECT_EQ(logistic_exact(1e30f), 1.0f);
  EXPECT_EQ(logistic_exact(kInf), 1.0f);
  EXPECT_TRUE(std::isnan(gated_silu(std::nanf(""), 1)));
  EXPECT_TRUE(std::isnan(gated_silu(-kInf, 1)));
  EXPECT_EQ(gated_silu(kInf, 2), kInf);
}

TEST(ExactFunctions, gelus_with_erf_are_as_close_as_they_say) {
  const auto below = [](double x) { return 0.5 * std::erfc(-x * std::numbers::sqrt2 / 2); };
  const auto exact = [&](double x) { return x == 0 ? 1 : x * below(x); };
  const auto of = [](float x) { return x == 0 ? 1 : gelu_erf(x); };
  EXPECT_LT(worst(5, of, exact), 0x1p-20);
  EXPECT_LT(worst(12, of, exact), 0x1p-17);
  for (float x = -12; x < 12; x += 0x1p-8f) {
    const double bell = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    ASSERT_NEAR(gelu_erf_slope(x), below(x) + x * bell, 0x1p-21) << x;
  }
  EXPECT_EQ(gelu_erf(kInf), kInf);
  EXPECT_EQ(gelu_erf(100), 100.0f);
  EXPECT_EQ(gelu_erf(-100), 0.0f);
  EXPECT_TRUE(std::isnan(gelu_erf(std::nanf(""))));
  EXPECT_TRUE(std::isnan(gelu_erf_slope(std::nanf(""))));
}

TEST(ExactFunctions, logarithms_of_ends_are_no_numbers) {
  EXPECT_EQ(log_exact(1), 0.0f);
  EXPECT_EQ(log_exact(0), -kInf);
  EXPECT_EQ(log_exact(kInf), kInf);
  EXPECT_TRUE(std::isnan(log_exact(std::nanf(""))));
  EXPECT_EQ(log_exact(3), static_cast<float>(std::log(3.0)));
}

// A library's double may round to the other side for one angle in 2^28.
TEST(ExactFunctions, sines_and_cosines_are_those_of_doubles_rounded) {
  const RandomStream random{.name = name_hash("angles")};
  for (uint64_t i = 0; i < 100'000; ++i) {
    const double range = std::exp2(31.0 * static_cast<double>(random.uniform(2 * i)) - 8);
    const double angle = range * (2.0 * static_cast<double>(random.uniform(2 * i + 1)) - 1);
    const SineCosine made = sine_cosine_exact(angle);
    ASSERT_EQ(made.sine, static_cast<float>(std::sin(angle))) << angle;
    ASSERT_EQ(made.cosine, static_cast<float>(std::cos(angle))) << angle;
  }
}

}  // namespace
}  // namespace octet::exact_functions_test
