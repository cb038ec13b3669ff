// Depthwise convolutions under recipes, against sums of products of rounded operands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "backends/cpu/reference/reference.h"
#include "base/error.h"
#include "formats/quantize.h"
#include "ir/print.h"
#include "nn/convolution.h"
#include "passes/autodiff.h"
#include "passes/memory/recompute.h"
#include "passes/precision/recipe.h"
#include "passes/rewrite/simplify.h"

namespace octet::depthwise {
namespace {

using testing::HasSubstr;

using Numbers = std::vector<double>;
constexpr int64_t kBatch = 2, kChannels = 5, kSide = 6, kOut = 3;  // stride 2, border 1

// depthwise(x), with "loss", the sum of its products with dout, and all gradients.
Graph logical_graph() {
  const ModelSpec spec =
      resolved({.kind = ModelKind::resnet, .image_size = kSide, .channels = kChannels});
  const auto apply = [](Blocks& b) {
    const Picture pixels = picture_of(b, b.input("pixels"));
    b.enter(3, "l.");
    return convolution(b, pixels, "dw", kChannels,
                       {.stride = 2, .padding = 1, .groups = kChannels});
  };
  Blocks declared(spec);
  apply(declared);
  Blocks b(spec, {.batch = kBatch}, {}, declared.parameters());
  const Picture y = apply(b);
  Builder& builder = b.builder();
  const ValueId dout = builder.input(InputKind::batch, "dout", real_type(b.shape(y.x)));
  builder.output("y", y.x);
  builder.output("loss", builder.reduce_sum(builder.mul(y.x, dout), {0, 1}));
  return simplify(autodiff(b.take_graph(), {.with_respect_to = {"pixels", "l.dw.weight"}}));
}

reference::Tensors inputs_of(const Graph& graph) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  reference::Tensors inputs;
  for (const GraphInput& input : graph.inputs) {
    Numbers values(static_cast<size_t>(graph.type(input.value).n_elems()));
    for (double& value : values) value = static_cast<double>(static_cast<float>(normal(random)));
    inputs[input.name] = values;
  }
  return inputs;
}

// Values that codes with one scale stand for.
Numbers rounded(Dtype dtype, const Numbers& values) {
  const bool is_gradient = dtype == Dtype::e5m2;
  Quantizer quantizer{.format = dtype};
  quantizer.amax_target =
      is_gradient ? find_format(dtype).gradient_amax_target : find_format(dtype).amax_target;
  const MatrixShape shape{1, std::ssize(values)};
  std::vector<float> x(values.begin(), values.end()), scale(1), back(values.size());
  std::vector<uint8_t> codes(values.size());
  quantize(quantizer, shape, x, codes, scale);
  dequantize(quantizer, shape, codes, scale, back);
  return {back.begin(), back.end()};
}

struct Expected {
  Numbers y, dx, dw;
};
Expected sums_of_products(const Numbers& x, const Numbers& w, const Numbers& dout) {
  Expected sums{Numbers(dout.size()), Numbers(x.size()), Numbers(w.size())};
  for (int64_t n = 0; n < kBatch; ++n)
    for (int64_t p = 0; p < kOut * kOut; ++p)
      for (int64_t c = 0; c < kChannels; ++c)
        for (int64_t tap = 0; tap < 9; ++tap) {
          const int64_t row = p / kOut * 2 + tap / 3 - 1, column = p % kOut * 2 + tap % 3 - 1;
          if (row < 0 || row >= kSide || column < 0 || column >= kSide) continue;
          const auto i = static_cast<size_t>(((n * kChannels + c) * kSide + row) * kSide + column);
          const auto j = static_cast<size_t>(c * 9 + tap);
          const auto k = static_cast<size_t>((n * kOut * kOut + p) * kChannels + c);
          sums.y[k] += x[i] * w[j];
          sums.dx[i] += w[j] * dout[k];
          sums.dw[j] += x[i] * dout[k];
        }
  return sums;
}

void expect_near(const Numbers& got, const Numbers& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 2e-5) << what << i;
}

// Single precision beside the codes, whose scales are those of the step.
Graph quantized(const std::vector<LinearOverride>& overrides) {
  const Recipe recipe{.name = "f32",
                      .help = "",
                      .compute = Dtype::f32,
                      .weight_copy = WeightCopy::per_use,
                      .apply = apply_quantized_linears};
  return recipe.apply(recipe, logical_graph(), {.gradient = Dtype::f32, .overrides = overrides});
}

TEST(DepthwiseRecipes, round_operands_forward_and_backward_and_sum_in_f32) {
  const LinearFormats fp8 = find_recipe("fp8_linear").linears;
  const OperandFormat none{.quantized = false};
  const struct {
    std::vector<LinearOverride> overrides;
    bool x, w, dy;
  } cases[] = {
      {{{.pattern = "*", .formats = fp8}}, true, true, true},
      {{{.pattern = "layers.3.dw", .x = operand_format(Dtype::e4m3, false)}}, true, false, false},
      {{{.pattern = "*", .formats = fp8}, {.pattern = "layers.3.*", .w = none, .dy = none}},
       true,
       false,
       false},
      {{{.pattern = "*", .formats = fp8}, {.pattern = "*", .x = none}}, false, true, true},
  };
  for (const auto& [overrides, x, w, dy] : cases) {
    const Graph graph = quantized(overrides);
    const auto inputs = inputs_of(graph);
    const auto as_read = [&](bool is_rounded, Dtype dtype, const char* name) {
      return is_rounded ? rounded(dtype, inputs.at(name)) : inputs.at(name);
    };
    const Expected expected =
        sums_of_products(as_read(x, Dtype::e4m3, "pixels"), as_read(w, Dtype::e4m3, "l.dw.weight"),
                         inputs.at("dout"));
    const Expected back =
        sums_of_products(as_read(x, Dtype::e4m3, "pixels"), as_read(w, Dtype::e4m3, "l.dw.weight"),
                         as_read(dy, Dtype::e5m2, "dout"));
    for (const Recompute what : {Recompute::none, Recompute::cheap}) {
      const auto got = reference::interpret(recompute(graph, {.what = what}), inputs);
      expect_near(got.at("y"), expected.y, "y ");
      expect_near(got.at("grad:pixels"), back.dx, "dx ");
      expect_near(got.at("grad:l.dw.weight"), back.dw, "dw ");
    }
  }
}

TEST(DepthwiseRecipes, have_a_line_in_the_table_and_a_name_for_overrides) {
  const Graph graph = logical_graph();
  EXPECT_EQ(resolved_table(find_recipe("fp8_linear"), graph, {}),
            "layers.3.dw                      x e4m3  w e4m3  dy e5m2\n");
  EXPECT_EQ(resolved_table(find_recipe("coat-static"), graph, {}),
            "layers.3.dw                      x bf16  w bf16  dy bf16\n");
  const auto check = [&](std::string_view recipe) {
    check_overrides(recipe, find_recipe(recipe).linears, graph,
                    {{.pattern = "*.dw", .formats = LinearFormats{.quantized = false}}});
  };
  check("fp8_linear");
  try {
    check("coat-static");
    FAIL() << "predicted scales are of GEMMs";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected a pattern that matches a linear"));
  }
}

// Nine places of windows would be nine pictures.
TEST(DepthwiseRecipes, have_an_op_a_product_and_keep_nothing_between_them) {
  for (const char* name : {"bf16", "fp8_linear"}) {
    const Recipe& recipe = find_recipe(name);
    const Graph graph = recompute(recipe.apply(recipe, logical_graph(), {}), {Recompute::none});
    std::multiset<GemmRole> roles;
    for (const Node& node : graph.nodes) {
      if (node.tag.layer < 0) continue;
      if (node.op == OpCode::depthwise) roles.insert(std::get<ConvolutionAttrs>(node.attrs).role);
      for (const ValueId id : node.results)
        EXPECT_LT(graph.type(id).shape.size(), 4u) << print(graph, node);
    }
    EXPECT_EQ(roles, (std::multiset{GemmRole::forward, GemmRole::dgrad, GemmRole::wgrad})) << name;
  }
}

}  // namespace
}  // namespace octet::depthwise
