#include "ptq/simulate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "ptq/gptq.h"

namespace octet::ptq_simulate_test {
namespace {

std::vector<float> normals(int64_t n, uint32_t seed, float sigma = 1) {
  const RandomStream random{.name = name_hash("ptq"), .seed = seed};
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = sigma * random.normal(i);
  return x;
}

TEST(QuantizedWeights, have_a_scale_for_each_block_even_at_ragged_edges) {
  ThreadPool pool(2);
  const MatrixShape shape{5, 7};
  std::vector<float> w = normals(shape.n_elems(), 1);
  w[34] = 100;  // the last
  const QuantizedWeight q =
      quantize_weight({.dtype = Dtype::int8, .block = {4, 3}, .target = 127}, shape, w, pool);
  EXPECT_EQ(q.grid(), (MatrixShape{2, 3}));
  EXPECT_EQ(q.scales.back(), 100.0f * (1.0f / 127));
  EXPECT_EQ(q.data[34], 127);
  const std::vector<float> y = dequantized(q);
  for (size_t i = 0; i < w.size(); ++i) {
    const size_t block = i / 7 / 4 * 3 + i % 7 / 3;
    EXPECT_LE(std::abs(w[i] - y[i]), q.scales[block] * 0.5001f) << i;
  }
}

TEST(QuantizedWeights, of_int8_are_symmetric_and_round_to_even) {
  ThreadPool pool(1);
  const std::vector<float> w = {-127, 127, -128, 0.5f, 1.5f, -2.5f, 1e9f, -1e9f};
  const QuantizedWeight q =
      quantize_weight({.dtype = Dtype::int8, .block = {1, 8}, .scale = 1.0f}, {1, 8}, w, pool);
  EXPECT_EQ(q.data, (std::vector<uint8_t>{129, 127, 129, 0, 2, 254, 127, 129}));
}

TEST(QuantizedWeights, of_hif8_have_powers_of_two_that_bring_amax_to_15_at_most) {
  ThreadPool pool(1);
  for (const float largest : {0.7f, 15.0f, 15.1f, 1e-6f, 3e4f}) {
    const std::vector<float> w = {largest, -largest / 3};
    const QuantizedWeight q = quantize_weight(
        {.dtype = Dtype::hif8, .block = {1, 2}, .power = true, .target = 15}, {1, 2}, w, pool);
    const float scale = q.scales.at(0);
    EXPECT_EQ(std::exp2(std::round(std::log2(scale))), scale);
    EXPECT_LE(largest / scale, 15);
    EXPECT_GT(largest / scale, 7.5f);
  }
}

TEST(SimulatedActivations, saturate_with_a_fixed_scale_and_not_with_their_own) {
  ThreadPool pool(1);
  const std::vector<float> x = {1, 2, 1000, -3};
  const auto fixed = simulated({.dtype = Dtype::e4m3, .scale = 1.0f}, x, 4, pool);
  EXPECT_EQ(fixed, (std::vector<float>{1, 2, 448, -3}));
  const auto rows = simulated({.dtype = Dtype::e4m3, .group = 2}, x, 4, pool);
  EXPECT_EQ(rows[0], 1);
  EXPECT_EQ(rows[1], 2);
  EXPECT_NEAR(rows[2], 1000, 1e-3);
  const QuantizationError error = error_of(x, fixed);
  EXPECT_NEAR(error.mse, 552.0 * 552.0 / 4, 1e-6);
}

TEST(SimulatedActivations, tell_what_was_clipped_and_flushed) {
  const std::vector<float> x = {1e-9f, 0, 1000, 5};
  ThreadPool pool(1);
  QuantizationError error =
      error_of(x, simulated({.dtype = Dtype::e4m3, .scale = 1.0f}, x, 4, pool));
  add_clipping(Dtype::e4m3, 1, x, error);
  EXPECT_EQ(error.flushed, 0.25);
  EXPECT_EQ(error.clipped, 0.25);
}

// Inputs of which each is near a sum of others, so that one column can make good another's loss.
struct Problem {
  static constexpr int64_t kRows = 512, kIn = 96, kOut = 24;
  std::vector<float> x = normals(kRows * kIn, 7), w = normals(kOut * kIn, 8, 0.05f);
  std::vector<double> gram = std::vector<double>(kIn * kIn, 0.0);

  explicit Problem(float shared) {
    const std::vector<float> common = normals(kRows, 9);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kIn; ++c) x[r * kIn + c] += shared * common[r];
    }
    add_gram();
  }
  void add_gram() {
    std::fill(gram.begin(), gram.end(), 0.0);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < kIn; ++i) {
        for (int64_t j = 0; j < kIn; ++j) gram[i * kIn + j] += x[r * kIn + i] * x[r * kIn + j];
      }
    }
  }
  double error(const std::vector<float>& q) const {
    double sum = 0;
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t o = 0; o < kOut; ++o) {
        double d = 0;
        for (int64_t i = 0; i < kIn; ++i) d += x[r * kIn + i] * (q[o * kIn + i] - w[o * kIn + i]);
        sum += d * d;
      }
    }
    return sum;
  }
};

TEST(Gptq, loses_less_than_rounding_where_inputs_go_together) {
  const Problem problem(3);
  ThreadPool pool(2);
  const MatrixShape shape{Problem::kOut, Problem::kIn};
  for (const int64_t group : {int64_t{32}, Problem::kIn}) {
    const WeightQuantizer how{.dtype = Dtype::int8, .block = {1, group}, .target = 15};
    const double rounded = problem.error(dequantized(quantize_weight(how, shape, problem.w, pool)));
    const double made_good = problem.error(dequantized(
        gptq(how, {shape, problem.w}, {problem.gram, Problem::kRows}, {.block = 40}, pool)));
    EXPECT_LT(made_good, 0.5 * rounded) << group;
  }
}

TEST(Gptq, does_not_depend_on_its_blocks_or_on_threads) {
  const Problem problem(1);
  const MatrixShape shape{Problem::kOut, Problem::kIn};
  const WeightQuantizer how{.dtype = Dtype::int8, .block = {1, 32}, .target = 127};
  ThreadPool one(1), two(2);
  const auto a = gptq(how, {shape, problem.w}, {problem.gram, Problem::kRows}, {.block = 32}, one);
  const auto b = gptq(how, {shape, problem.w}, {problem.gram, Problem::kRows}, {.block = 32}, two);
  EXPECT_EQ(a.data, b.data);
  const auto c = gptq(how, {shape, problem.w}, {problem.gram, Problem::kRows}, {.block = 96}, one);
  int n_different = 0;
  for (size_t i = 0; i < a.data.size(); ++i) n_different += a.data[i] != c.data[i] ? 1 : 0;
  EXPECT_LT(n_different, 20);  // sums in another order
}

TEST(Gptq, of_independent_inputs_is_rounding_and_inputs_that_are_never_there_have_no_weight) {
  Problem problem(0);
  std::fill(problem.gram.begin(), problem.gram.end(), 0.0);
  for (int64_t i = 0; i < Problem::kIn; ++i) problem.gram[i * Problem::kIn + i] = i == 5 ? 0 : 512;
  ThreadPool pool(1);
  const MatrixShape shape{Problem::kOut, Problem::kIn};
  const WeightQuantizer how{.dtype = Dtype::int8, .block = {1, 1 << 20}, .scale = 0.001f};
  const auto q = gptq(how, {shape, problem.w}, {problem.gram, Problem::kRows}, {}, pool);
  const auto rounded = quantize_weight(how, shape, problem.w, pool);
  for (size_t i = 0; i < q.data.size(); ++i) {
    EXPECT_EQ(q.data[i], i % Problem::kIn == 5 ? 0 : rounded.data[i]) << i;
  }
}

}  // namespace
}  // namespace octet::ptq_simulate_test
