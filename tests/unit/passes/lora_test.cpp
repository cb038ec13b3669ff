#include "passes/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/verify.h"
#include "passes/autodiff.h"
#include "passes/precision/recipe.h"
#include "passes/rewrite/simplify.h"
#include "unit/base/error_of.h"

namespace octet::passes_lora_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two linears in a layer, one outside.
Graph forward() {
  Graph graph;
  Builder b(graph);
  const auto weight = [&](const std::string& name, Shape shape) {
    return b.input(InputKind::parameter, name, real_type(std::move(shape)));
  };
  const ValueId up = weight("layers.0.mlp.up_proj.weight", {6, 4});
  const ValueId down = weight("layers.0.mlp.c_proj.weight", {6, 4});
  const ValueId head = weight("lm_head.weight", {5, 4});
  const ValueId x = b.input(InputKind::batch, "x", real_type({3, 4}));
  b.tag = {.layer = 0, .origin = "up_proj"};
  const ValueId y = b.gemm(x, up, {.trans_b = true, .role = GemmRole::forward});
  b.tag = {.layer = 0, .origin = "mlp.c_proj"};
  const ValueId z = b.gemm(y, down, {.role = GemmRole::forward});
  b.tag = {.origin = "lm_head"};
  const ValueId logits = b.gemm(z, head, {.trans_b = true, .role = GemmRole::forward});
  b.output("loss", b.reduce_sum(b.mul(logits, logits), {0, 1}));
  return graph;
}

std::vector<std::string> inputs_of(const Graph& graph, InputKind kind) {
  std::vector<std::string> names;
  for (const GraphInput& input : graph.inputs) {
    if (input.kind == kind) names.push_back(input.name);
  }
  return names;
}

TEST(Lora, puts_adapters_beside_linears_and_freezes_the_rest) {
  const Graph graph = add_lora(forward(), {.rank = 2, .targets = {"*_proj"}});
  verify(graph);
  EXPECT_THAT(
      inputs_of(graph, InputKind::parameter),
      ElementsAre("layers.0.mlp.up_proj.lora_A.weight", "layers.0.mlp.up_proj.lora_B.weight",
                  "layers.0.mlp.c_proj.lora_A.weight", "layers.0.mlp.c_proj.lora_B.weight"));
  EXPECT_THAT(
      inputs_of(graph, InputKind::constant),
      ElementsAre("layers.0.mlp.up_proj.weight", "layers.0.mlp.c_proj.weight", "lm_head.weight"));
  const auto shape = [&](const std::string& name) {
    return graph.type(graph.find_input(name)->value).shape;
  };
  EXPECT_EQ(shape("layers.0.mlp.up_proj.lora_A.weight"), (Shape{2, 4}));
  EXPECT_EQ(shape("layers.0.mlp.up_proj.lora_B.weight"), (Shape{6, 2}));
  EXPECT_EQ(shape("layers.0.mlp.c_proj.lora_A.weight"), (Shape{2, 6}));  // the weight is [in, out]
  EXPECT_EQ(shape("layers.0.mlp.c_proj.lora_B.weight"), (Shape{4, 2}));
}

TEST(Lora, frozen_weights_have_no_gradient_and_no_product_for_one) {
  const LoraOptions options{.rank = 2, .targets = {"up_proj"}};
  const Graph graph = simplify(autodiff(add_lora(forward(), options)));
  std::vector<std::string> gradients;
  for (const GraphOutput& output : graph.outputs) {
    if (is_gradient_name(output.name)) gradients.push_back(output.name);
  }
  EXPECT_THAT(gradients, ElementsAre("grad:layers.0.mlp.up_proj.lora_A.weight",
                                     "grad:layers.0.mlp.up_proj.lora_B.weight"));
  for (const Node& node : graph.nodes) {
    if (node.op != OpCode::gemm || std::get<GemmAttrs>(node.attrs).role != GemmRole::wgrad)
      continue;
    const Shape& shape = graph.type(node.out(Gemm::y)).shape;
    EXPECT_TRUE(shape == (Shape{2, 4}) || shape == (Shape{6, 2})) << to_string(shape);
  }
}

TEST(Lora, targets_are_modules_their_last_parts_or_short_names) {
  const auto modules = [](const std::string& target) {
    std::vector<std::string> names;
    for (const LoraAdapter& adapter : lora_adapters(forward(), {.rank = 1, .targets = {target}}))
      names.push_back(adapter.module);
    return names;
  };
  EXPECT_THAT(modules("up_proj"), ElementsAre("layers.0.mlp.up_proj"));
  EXPECT_THAT(modules("layers.0.up_proj"), ElementsAre("layers.0.mlp.up_proj"));
  EXPECT_THAT(modules("layers.0.mlp.c_*"), ElementsAre("layers.0.mlp.c_proj"));
  EXPECT_EQ(modules("*").size(), 2u);  // not the head
}

TEST(Lora, a_target_that_matches_nothing_is_an_error_that_names_the_linears) {
  const auto error = [](const std::string& target) {
    return test::error_of([&] {
      add_lora(forward(), {.rank = 1, .targets = {"up_proj", target}});
    });
  };
  EXPECT_THAT(error("q_proj"), HasSubstr("'q_proj'"));
  EXPECT_THAT(error("lm_head"), HasSubstr("up_proj"));
}

// How many bytes of constants a typed graph has.
int64_t constant_bytes(const Graph& graph) {
  int64_t total = 0;
  for (const GraphInput& input : graph.inputs) {
    if (input.kind == InputKind::constant) total += graph.type(input.value).n_bytes();
  }
  return total;
}

TEST(Lora, a_frozen_base_in_eight_bits_is_bytes_and_scales) {
  const Graph graph = simplify(autodiff(add_lora(forward(), {.rank = 2, .targets = {"*_proj"}})));
  const int64_t linears = 2 * 24, head = 20;
  const auto bytes = [&](FrozenFormat format) {
    const Graph typed = find_recipe("bf16").apply(find_recipe("bf16"), graph, {.frozen = format});
    verify(typed);
    return constant_bytes(typed);
  };
  EXPECT_EQ(bytes(FrozenFormat::as_computed), 2 * (linears + head));
  EXPECT_EQ(bytes(FrozenFormat::e4m3), linears + 2 * 4 + 2 * head);
  EXPECT_EQ(bytes(FrozenFormat::hif8), linears + 2 * 4 + 2 * head);
  EXPECT_EQ(bytes(FrozenFormat::e4m3_blocks), linears + 2 * 6 * 2 + 2 * head);
}

TEST(Lora, a_frozen_base_is_kept_as_asked_in_every_recipe) {
  const Graph graph = simplify(autodiff(add_lora(forward(), {.rank = 2, .targets = {"*_proj"}})));
  for (const Recipe* recipe : all_recipes()) {
    if (recipe->unit_scales) continue;  // trains no adapters
    const Graph typed = recipe->apply(*recipe, graph, {.frozen = FrozenFormat::e4m3});
    verify(typed);
    const GraphInput* data = typed.find_input("layers.0.mlp.up_proj.weight");
    EXPECT_EQ(typed.type(data->value).dtype, Dtype::e4m3) << recipe->name;
  }
}

TEST(Lora, gemms_of_codes_read_the_base_as_it_is_kept) {
  const Graph graph = simplify(autodiff(add_lora(forward(), {.rank = 2, .targets = {"*_proj"}})));
  const Recipe& recipe = find_recipe("fp8_linear");
  const Graph typed = simplify(recipe.apply(recipe, graph, {.frozen = FrozenFormat::e4m3}));
  verify(typed);
  const GraphInput* data = typed.find_input("layers.0.mlp.up_proj.weight");
  int n_direct = 0, n_quantized_weights = 0;
  for (const Node& node : typed.nodes) {
    if (node.op == OpCode::gemm && (node.in(Gemm::b) == data->value)) ++n_direct;
    const bool is_quantizer = node.op == OpCode::quantize || node.op == OpCode::amax;
    if (is_quantizer && frozen_weight(typed, node.operands[0])) ++n_quantized_weights;
  }
  EXPECT_GE(n_direct, 1);
  EXPECT_EQ(n_quantized_weights, 0);
}

}  // namespace
}  // namespace octet::passes_lora_test
