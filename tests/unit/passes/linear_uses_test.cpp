// A weight that several GEMMs of a graph read: one scale of it, and scales of inputs and gradients
// for each use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/linear_use.h"
#include "ir/parse.h"
#include "passes/autodiff.h"
#include "passes/lora.h"
#include "passes/precision/recipe.h"
#include "passes/rewrite/simplify.h"
#include "unit/base/error_of.h"

namespace octet::passes_linear_uses_test {
namespace {

using testing::HasSubstr;

// x through w, whose use stands where `where` says, and through w again.
Graph twice(const std::string& first, const std::string& second) {
  return parse_graph(R"(graph "g" phase logical
%0 = input parameter "m.weight" : real[16,16]
%1 = input batch "x" : real[16,16]
%2 = gemm(%1, %0) {trans_b = true, role = forward} : real[16,16] @ )" +
                         first + R"(
%3 = gemm(%2, %0) {trans_b = true, role = forward} : real[16,16] @ )" +
                         second + R"(
%4 = reduce_sum(%3) {axes = [0,1]} : real[]
output "loss" %4
)",
                     "text");
}

int count_inputs(const Graph& graph, std::string_view prefix) {
  int n = 0;
  for (const GraphInput& input : graph.inputs) n += input.name.starts_with(prefix) ? 1 : 0;
  return n;
}

Graph typed(const std::string& recipe, const Graph& graph, const RecipeOptions& options = {}) {
  const Recipe& known = find_recipe(recipe);
  return known.apply(known, simplify(autodiff(graph)), options);
}

TEST(LinearUses, have_names_of_their_own_and_one_linear) {
  EXPECT_EQ(use_origin("hh", 0), "hh");
  EXPECT_EQ(use_origin("hh", 12), "hh@12");
  EXPECT_EQ(linear_of_use("hh@12"), "hh");
  EXPECT_EQ(linear_of_use("hh"), "hh");
  const Graph graph = twice("layer 0, forward, \"hh\"", "layer 0, forward, \"hh@1\"");
  EXPECT_EQ(linear_name(graph.nodes[1]), "layers.0.hh");
  const std::string table = resolved_table(find_recipe("fp8_linear"), graph, {});
  EXPECT_EQ(std::ranges::count(table, '\n'), 1);
}

TEST(LinearUses, share_the_scale_of_a_weight_across_layers_too) {
  for (const char* second : {"layer 0, forward, \"hh@1\"", "layer 1, forward, \"hh\""}) {
    const Graph graph = twice("layer 0, forward, \"hh\"", second);
    for (const char* recipe : {"fp8_linear", "hif8", "coat", "coat-fast"}) {
      const Graph made = typed(recipe, graph);
      EXPECT_EQ(count_inputs(made, "copy_scale:"), 1) << recipe << " " << second;
      EXPECT_LE(count_inputs(made, "copy:"), 1) << recipe << " " << second;
    }
    const Graph delayed = typed("fp8_linear", graph, {.scaling = Scaling::delayed});
    EXPECT_EQ(count_inputs(delayed, "amax_history:"), 4) << second;
    const Graph periodic = typed("fp8_linear", graph, {.scaling = Scaling::periodic});
    EXPECT_EQ(count_inputs(periodic, "rescale_factor:"), 5) << second;
  }
}

TEST(LinearUses, of_one_name_or_of_two_formats_are_refused) {
  const std::string same = test::error_of(
      [] { typed("fp8_linear", twice("layer 0, forward, \"hh\"", "layer 0, forward, \"hh\"")); });
  EXPECT_THAT(same, HasSubstr("one linear 'layers.0.hh', or other uses of it as 'layers.0.hh@1'"));
  RecipeOptions options;
  options.overrides = {{.pattern = "layers.1.*", .w = operand_format(Dtype::e5m2, false)}};
  const std::string formats = test::error_of([&] {
    typed("fp8_linear", twice("layer 0, forward, \"hh\"", "layer 1, forward, \"hh\""), options);
  });
  EXPECT_THAT(formats, HasSubstr("expected one format of weight m.weight for layers.0.hh and "
                                 "layers.1.hh, which both read it, got e4m3 and e5m2"));
}

TEST(LinearUses, have_one_adapter) {
  const Graph graph = twice("layer 0, forward, \"hh\"", "layer 0, forward, \"hh@1\"");
  LoraOptions options{.rank = 2};
  options.targets = {"*"};
  EXPECT_EQ(lora_adapters(graph, options).size(), 1U);
  EXPECT_EQ(count_inputs(add_lora(graph, options), "m.lora_A"), 1);
  options.dropout = 0.1;
  EXPECT_THAT(test::error_of([&] { add_lora(graph, options); }),
              HasSubstr("lora.dropout: expected 0 for m"));
}

}  // namespace
}  // namespace octet::passes_linear_uses_test
