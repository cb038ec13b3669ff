#include <gtest/gtest.h>

#include <cmath>

#include "unit/math/state_mse.h"

namespace octet::math_adamw_state_error_test {
namespace {

// Adam's states after many steps of gradients whose scale varies over the elements: v the moving
// mean of squares, m of the gradients themselves.
struct Synthetic {
  const char* name;
  double sigma_ln, beta2;
};

struct States {
  std::vector<float> m, v;
};

States make_states(const Synthetic& s) {
  constexpr size_t kElements = 128 * 32;
  const int steps = s.beta2 > 0.99 ? 3000 : 150;
  States states{std::vector<float>(kElements), std::vector<float>(kElements)};
  const RandomStream scales{.name = name_hash("scale")};
  for (size_t i = 0; i < kElements; ++i) {
    const double scale = 1e-4 * std::exp(s.sigma_ln * scales.normal(i));
    double m = 0, v = 0;
    for (int t = 0; t < steps; ++t) {
      const RandomStream draw{.name = name_hash("gradient"), .step = static_cast<uint32_t>(t)};
      // Sum of three uniform numbers: near enough to a normal one, and quick.
      const double u = draw.uniform(3 * i) + draw.uniform(3 * i + 1) + draw.uniform(3 * i + 2);
      const double g = scale * 2 * (u - 1.5);
      m = 0.9 * m + 0.1 * g;
      v = s.beta2 * v + (1 - s.beta2) * g * g;
    }
    states.m[i] = static_cast<float>(m);
    states.v[i] = static_cast<float>(v);
  }
  return states;
}

class StateError : public testing::TestWithParam<Synthetic> {};

TEST_P(StateError, orders_the_formats_as_published) {
  const States states = make_states(GetParam());
  constexpr MomentKind kKinds[] = {
      {Dtype::e4m3, false}, {Dtype::e4m3, true}, {Dtype::e5m2, false}, {Dtype::e5m2, true}};
  enum { e4m3, e4m3_x, e5m2, e5m2_x };
  double table[4][4];
  for (int m = 0; m < 4; ++m) {
    for (int v = 0; v < 4; ++v) table[m][v] = state_mse(states.m, states.v, kKinds[m], kKinds[v]);
  }
  const auto mse = [&](int m, int v) { return table[m][v]; };
  for (int m = 0; m < 4; ++m) {
    for (int v = 0; v < 4; ++v) {
      const double least = (v == e5m2_x ? 0.92 : 1.0) * mse(e4m3_x, e4m3_x);
      EXPECT_GE(mse(m, v), least) << m << " " << v;
      EXPECT_LE(mse(m, v), mse(e5m2, e5m2)) << m << " " << v;
      RecordProperty(std::to_string(m) + std::to_string(v), std::to_string(mse(m, v)));
    }
  }
  const double plain = mse(e4m3, e4m3);
  EXPECT_GT(plain / mse(e4m3_x, e4m3), 1.5);    // expansion of m
  EXPECT_GT(plain / mse(e4m3, e4m3_x), 1.05);   // of v
  EXPECT_GT(plain / mse(e4m3_x, e4m3_x), 2.5);  // of both
  EXPECT_NEAR(plain / mse(e5m2, e5m2), 0.25, 0.05);
  EXPECT_NEAR(mse(e4m3_x, e5m2_x) / mse(e4m3_x, e4m3_x), 1.0, 0.08);
  std::printf("[ states %s ] e4m3 %.3g, gains m+x %.2f v+x %.2f both %.2f e5m2 %.2f\n",
              GetParam().name, plain, plain / mse(e4m3_x, e4m3), plain / mse(e4m3, e4m3_x),
              plain / mse(e4m3_x, e4m3_x), plain / mse(e5m2, e5m2));
}

TEST_P(StateError, de8_alone_beats_e4m3_alone) {
  const States states = make_states(GetParam());
  const MomentKind de8{Dtype::de8s, false}, e4m3{Dtype::e4m3, false};
  EXPECT_LT(2 * state_mse(states.m, states.v, de8, de8), state_mse(states.m, states.v, e4m3, e4m3));
}

INSTANTIATE_TEST_SUITE_P(Synthetic, StateError,
                         testing::Values(Synthetic{"A", 0.3, 0.999}, Synthetic{"B", 0.5, 0.95}),
                         [](const auto& info) { return info.param.name; });

TEST(StateError, f32_has_none) {
  const std::vector<float> m = {1, -2}, v = {1, 4};
  EXPECT_EQ(state_mse(m, v, {Dtype::f32}, {Dtype::f32}), 0.0);
}

}  // namespace
}  // namespace octet::math_adamw_state_error_test
