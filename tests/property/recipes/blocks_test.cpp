// Scales by block: what the three GEMMs of a linear read, against the quantizers of formats/; and
// training with them.
#include <gtest/gtest.h>

#include <cmath>

#include "backends/cpu/reference/reference.h"
#include "formats/codec.h"
#include "formats/quantize.h"
#include "passes/autodiff.h"
#include "passes/rewrite/simplify.h"
#include "property/recipes/tiny_training.h"

namespace octet::recipes_blocks_test {
namespace {

using Kind = Granularity::Kind;
using Values = std::vector<float>;

// No block of 32 or 128 divides any of them.
constexpr int64_t kTokens = 150, kIn = 200, kOut = 170;

Values values_of(const std::string& name, int64_t n, float size) {
  const RandomStream random{.name = name_hash(name)};
  Values values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    const float octave = std::exp2(2 * static_cast<float>(i / 64 % 9) - 8);
    values[i] = f32_from_bf16(bf16_from_f32(random.normal(i) * size * octave));
  }
  return values;
}

struct Matrix {
  MatrixShape shape;
  Values values;
  float at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * shape.cols + c)]; }
  Matrix transposed() const {
    Matrix result{{shape.cols, shape.rows}, Values(values.size())};
    for (int64_t r = 0; r < shape.rows; ++r) {
      for (int64_t c = 0; c < shape.cols; ++c)
        result.values[static_cast<size_t>(c * shape.rows + r)] = at(r, c);
    }
    return result;
  }
};

// The matrix as eight bits hold it.
Matrix held(const Matrix& x, const Quantizer& quantizer) {
  Matrix result = x;
  std::vector<uint8_t> q(x.values.size());
  Values scales(static_cast<size_t>(scale_shape(x.shape, quantizer.granularity).n_elems()));
  quantize(quantizer, x.shape, x.values, q, scales);
  dequantize(quantizer, x.shape, q, scales, result.values);
  return result;
}

// a b^T with sums in double.
std::vector<double> product(const Matrix& a, const Matrix& b) {
  std::vector<double> y;
  for (int64_t i = 0; i < a.shape.rows; ++i) {
    for (int64_t j = 0; j < b.shape.rows; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < a.shape.cols; ++k)
        sum += static_cast<double>(a.at(i, k)) * static_cast<double>(b.at(j, k));
      y.push_back(sum);
    }
  }
  return y;
}

Quantizer groups_of_128() {
  return {.format = Dtype::e4m3,
          .granularity = {Kind::group, 128},
          .scale_type = Dtype::f32,
          .rule = ScaleRule::power_ceil,
          .amax_target = 448};
}
Quantizer blocks_of_128() {
  Quantizer quantizer = groups_of_128();
  quantizer.granularity = {Kind::block, 128};
  return quantizer;
}

// loss = sum(y * weights_of_y), whose gradient dy is weights_of_y; y = x w^T.
Graph linear_graph() {
  Graph graph;
  Builder b(graph);
  const ValueId w = b.input(InputKind::parameter, "w", real_type({kOut, kIn}));
  const ValueId x = b.input(InputKind::batch, "x", real_type({kTokens, kIn}));
  const ValueId dy = b.input(InputKind::batch, "dy", real_type({kTokens, kOut}));
  b.tag = {.layer = 0, .role = Role::forward, .origin = "q_proj"};
  const ValueId y = b.gemm(x, w, {.trans_b = true, .role = GemmRole::forward});
  b.tag = {};
  b.output("y", y);
  b.output("loss", b.reduce_sum(b.mul(y, dy), {0, 1}));
  return graph;
}

struct Linear {
  Matrix x{{kTokens, kIn}, values_of("x", kTokens* kIn, 1)};
  Matrix w{{kOut, kIn}, values_of("w", kOut* kIn, 0.02f)};
  Matrix dy{{kTokens, kOut}, values_of("dy", kTokens* kOut, 1e-4f)};

  reference::Tensors run(std::string_view recipe, const RecipeOptions& options) const {
    const Recipe& by = find_recipe(recipe);
    Graph graph = simplify(autodiff(linear_graph(), {.with_respect_to = {"w", "x"}}));
    graph = by.apply(by, graph, options);
    reference::Tensors inputs;
    inputs["x"] = {x.values.begin(), x.values.end()};
    inputs["w"] = {w.values.begin(), w.values.end()};
    inputs["dy"] = {dy.values.begin(), dy.values.end()};
    return reference::interpret(graph, inputs);
  }
};

// Results are BF16.
void expect_product(const std::vector<double>& got, const std::vector<double>& expected,
                    const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], std::abs(expected[i]) * 0x1p-8 + largest * 1e-6)
        << what << " " << i;
}

Quantizer with_rule(Quantizer quantizer, ScaleRule rule) {
  quantizer.rule = rule;
  return quantizer;
}

// The largest magnitude of each block is the largest code; all operands from the tensors.
TEST(Fp8Block, reads_groups_of_128_along_what_each_gemm_reduces) {
  const Linear linear;
  const auto got = linear.run("fp8_block", {});
  const Quantizer groups = with_rule(groups_of_128(), ScaleRule::linear);
  const auto by = [&](const Matrix& m) { return held(m, groups); };
  const Matrix w = held(linear.w, with_rule(blocks_of_128(), ScaleRule::linear));
  expect_product(got.at("y"), product(by(linear.x), w), "y = x w^T");
  expect_product(got.at("grad:x"), product(by(linear.dy), w.transposed()), "dx = dy w");
  expect_product(got.at("grad:w"), product(by(linear.dy.transposed()), by(linear.x.transposed())),
                 "dw = dy^T x");
}

// A scale a row in the forward GEMM, one a tensor in the others.
TEST(Fp8Row, reads_rows_in_the_forward_gemm_alone) {
  const Linear linear;
  const auto got = linear.run("fp8_row", {.weight_copy = WeightCopy::per_use});
  const Quantizer rows = linear_quantizer(Dtype::e4m3, {.kind = Kind::row}),
                  tensor = linear_quantizer(Dtype::e4m3, {.kind = Kind::tensor}),
                  gradient = linear_quantizer(Dtype::e5m2, {.kind = Kind::tensor});
  expect_product(got.at("y"), product(held(linear.x, rows), held(linear.w, rows)), "y");
  const Matrix dy = held(linear.dy, gradient), w = held(linear.w, tensor),
               x = held(linear.x, tensor);
  expect_product(got.at("grad:x"), product(dy, w.transposed()), "dx");
  expect_product(got.at("grad:w"), product(dy.transposed(), x.transposed()), "dw");
}

// Rows in all three: where the reduction runs over them, columns.
TEST(Fp8Row, an_override_takes_rows_along_what_each_gemm_reduces) {
  const Linear linear;
  const OperandFormat by_row = *operand_format_from_name("e4m3/row", false);
  RecipeOptions options{.weight_copy = WeightCopy::per_use};
  options.overrides = {{.pattern = "*", .x = by_row, .w = by_row, .dy = by_row}};
  const auto got = linear.run("fp8_linear", options);
  const auto by = [](const Matrix& m) {
    return held(m, linear_quantizer(Dtype::e4m3, {.kind = Kind::row}));
  };
  expect_product(got.at("y"), product(by(linear.x), by(linear.w)), "y");
  expect_product(got.at("grad:x"), product(by(linear.dy), by(linear.w.transposed())), "dx");
  expect_product(got.at("grad:w"), product(by(linear.dy.transposed()), by(linear.x.transposed())),
                 "dw");
}

TEST(Fp8Block, reads_powers_of_two_as_runs_before_had_them) {
  const Linear linear;
  const auto got = linear.run("fp8_block", {.block_scale = BlockScale::power});
  const Matrix x = held(linear.x, groups_of_128()), w = held(linear.w, blocks_of_128()),
               dy = held(linear.dy, groups_of_128());
  expect_product(got.at("y"), product(x, w), "y = x w^T");
  expect_product(got.at("grad:x"), product(dy, w.transposed()), "dx = dy w");
  // Groups of tokens: dy from the tensor, x again from what the forward GEMM read.
  const Matrix dy_t = held(linear.dy.transposed(), groups_of_128()),
               x_t = held(x.transposed(), groups_of_128());
  expect_product(got.at("grad:w"), product(dy_t, x_t), "dw = dy^T x");
}

TEST(Mxfp8, reads_groups_of_32_with_scales_by_either_rule) {
  const Linear linear;
  for (const ScaleRule rule : {ScaleRule::power_ceil, ScaleRule::mx_floor}) {
    const auto got = linear.run("mxfp8", {.mx_rule = rule});
    const Quantizer mx = mx_quantizer(Dtype::e4m3, rule);
    const auto by = [&](const Matrix& m) { return held(m, mx); };
    expect_product(got.at("y"), product(by(linear.x), by(linear.w)), "y");
    expect_product(got.at("grad:x"), product(by(linear.dy), by(linear.w.transposed())), "dx");
    expect_product(got.at("grad:w"), product(by(linear.dy.transposed()), by(linear.x.transposed())),
                   "dw");
  }
}

// 500 = 1.95 x 2^8: the power of two below is 1, and E4M3 ends at 448.
TEST(Mxfp8, scales_rounded_down_saturate) {
  Linear linear;
  std::fill(linear.x.values.begin(), linear.x.values.end(), 0.0f);
  std::fill(linear.w.values.begin(), linear.w.values.end(), 0.0f);
  for (int64_t t = 0; t < kTokens; ++t) linear.x.values[static_cast<size_t>(t * kIn)] = 480;
  for (int64_t n = 0; n < kOut; ++n) linear.w.values[static_cast<size_t>(n * kIn)] = 1;
  const auto up = linear.run("mxfp8", {}),
             down = linear.run("mxfp8", {.mx_rule = ScaleRule::mx_floor});
  for (const double y : up.at("y")) ASSERT_EQ(y, 480);    // 240 x 2
  for (const double y : down.at("y")) ASSERT_EQ(y, 448);  // clipped by 7 %
}

TEST(Blocks, are_a_choice_for_each_operand) {
  const Linear linear;
  RecipeOptions options{.weight_copy = WeightCopy::per_use};
  options.overrides = {{.pattern = "*.q_proj", .x = operand_format_from_name("e4m3/1x128", false)}};
  options.block_scale = BlockScale::power;
  const auto got = linear.run("fp8_linear", options);
  Quantizer tensor = linear_quantizer(Dtype::e4m3, {Kind::tensor});
  expect_product(got.at("y"), product(held(linear.x, groups_of_128()), held(linear.w, tensor)),
                 "y");
  tensor = linear_quantizer(Dtype::e5m2, {Kind::tensor});
  const Matrix x_t = held(held(linear.x, groups_of_128()).transposed(), groups_of_128());
  expect_product(got.at("grad:w"), product(held(linear.dy.transposed(), tensor), x_t), "dw");
}

TEST(Blocks, train_whatever_they_meet) {
  const std::vector<LinearOverride> lists[] = {
      {{.pattern = "*.down_proj", .x = operand_format_from_name("e4m3/1x128", false)}},
      {{.pattern = "*", .w = operand_format_from_name("hif8/16x16", false)},
       {.pattern = "layers.1.*", .dy = operand_format_from_name("e5m2/1x32", true)}},
  };
  const auto plain = tiny::losses(tiny::options("fp8_linear"), 30);
  for (const auto& overrides : lists) {
    ProgramOptions options = tiny::options("fp8_linear");
    options.recipe_options.overrides = overrides;
    const auto losses = tiny::losses(options, 30);
    EXPECT_NE(losses[1], plain[1]);
    EXPECT_LT(losses.back(), losses.front() - 0.3f);
  }
}

// Linears that bf16 leaves alone take another recipe's formats where a line says so.
TEST(Overrides, map_a_pattern_to_the_formats_of_any_recipe) {
  const auto with = [](std::string_view base, std::string_view other) {
    const LinearFormats& formats = find_recipe(other).linears;
    ProgramOptions options = tiny::options(base);
    options.recipe_options.overrides = {{.pattern = "*", .formats = formats}};
    return tiny::losses(options, 4);
  };
  for (const char* recipe : {"fp8_linear", "hif8", "fp8_block", "fp8_row", "mxfp8"}) {
    const auto expected = tiny::losses(tiny::options(recipe), 4);
    EXPECT_EQ(with("bf16", recipe), expected) << recipe;
    EXPECT_EQ(with("fp8_linear", recipe), expected) << recipe;
  }
  EXPECT_EQ(with("hif8", "bf16"), tiny::losses(tiny::options("bf16"), 4));
}

}  // namespace
}  // namespace octet::recipes_blocks_test
