// The functions that cards and the reference share: as close as they say, and what they give at the
// ends of their range. That a card has the same bits is shown by tests/gpu/prove.
#include "math/exact_functions.h"

#include <gtest/gtest.h>

#include <limits>

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
  EXPECT_EQ(exp_exact(-87.01f), 0.0f);
  EXPECT_EQ(exp_exact(-kInf), 0.0f);
  EXPECT_TRUE(std::isnan(exp_exact(std::nanf(""))));
}

TEST(ExactFunctions, logistics_and_gates_are_as_close_as_they_say) {
  const auto exact = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_LT(worst(87, logistic_exact, exact), 0x1p-21);
  EXPECT_EQ(logistic_exact(-87.01f), 0.0f);
  EXPECT_EQ(logistic_exact(-kInf), 0.0f);
  EXPECT_EQ(logistic_exact(1e30f), 1.0f);
  EXPECT_EQ(logistic_exact(kInf), 1.0f);
  EXPECT_TRUE(std::isnan(gated_silu(std::nanf(""), 1)));
  EXPECT_TRUE(std::isnan(gated_silu(-kInf, 1)));
  EXPECT_EQ(gated_silu(kInf, 2), kInf);
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
