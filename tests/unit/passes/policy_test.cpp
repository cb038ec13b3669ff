#include "passes/precision/policy.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "ir/builder.h"
#include "passes/memory/recompute.h"
#include "passes/precision/recipe.h"
#include "passes/rewrite/reorder.h"
#include "unit/base/error_of.h"

namespace octet::passes_policy_test {
namespace {

struct PatternCase {
  std::string_view pattern, name;
  bool matches;
};

constexpr PatternCase kPatterns[] = {
    {"layers.0.*", "layers.0.q_proj", true},
    {"layers.0.*", "layers.10.q_proj", false},
    {"*.down_proj", "layers.3.down_proj", true},
    {"*.down_proj", "layers.3.down_proj2", false},
    {"*", "anything", true},
    {"", "", true},
    {"", "x", false},
    {"l*s.*.q*", "layers.1.q_proj", true},
    {"**", "", true},
    {"layers.1", "layers.11", false},
};

TEST(Policy, patterns_of_many_stars_are_matched_at_once) {
  const std::string name(200, 'a');
  std::string pattern;
  for (int i = 0; i < 60; ++i) pattern += "*a";
  EXPECT_TRUE(matches_pattern(pattern, name));
  EXPECT_FALSE(matches_pattern(pattern + "b", name));
  EXPECT_FALSE(matches_pattern(std::string(60, '*') + "b", name));
  EXPECT_TRUE(matches_pattern("a*c*d", "abccd"));
  EXPECT_TRUE(matches_pattern("**", ""));
  EXPECT_FALSE(matches_pattern("a*", "b"));
}

TEST(Policy, a_star_matches_any_run_of_characters) {
  for (const PatternCase& c : kPatterns)
    EXPECT_EQ(matches_pattern(c.pattern, c.name), c.matches) << c.pattern << " " << c.name;
}

struct AccumulationCase {
  FastAccumulate recipe;
  std::optional<Accumulation> chosen;
  GemmRole role;
  int64_t k;
  bool fast;
};

constexpr AccumulationCase kAccumulations[] = {
    {FastAccumulate::forward, {}, GemmRole::forward, 16384, true},
    {FastAccumulate::forward, {}, GemmRole::forward, 16400, false},
    {FastAccumulate::forward, {}, GemmRole::dgrad, 64, false},
    {FastAccumulate::forward, {}, GemmRole::wgrad, 64, false},
    {FastAccumulate::all, {}, GemmRole::forward, 16384, true},
    {FastAccumulate::all, {}, GemmRole::dgrad, 16384, true},
    {FastAccumulate::all, {}, GemmRole::dgrad, 16400, false},
    {FastAccumulate::all, {}, GemmRole::wgrad, 64, false},
    {FastAccumulate::all, Accumulation::promoted, GemmRole::forward, 64, false},
    {FastAccumulate::all, Accumulation::promoted, GemmRole::dgrad, 64, false},
    {FastAccumulate::all, Accumulation::forward, GemmRole::forward, 65536, true},
    {FastAccumulate::all, Accumulation::forward, GemmRole::dgrad, 64, false},
    {FastAccumulate::all, Accumulation::forward, GemmRole::wgrad, 64, false},
    {FastAccumulate::forward, Accumulation::fast, GemmRole::forward, 65536, true},
    {FastAccumulate::forward, Accumulation::fast, GemmRole::dgrad, 65536, true},
    {FastAccumulate::forward, Accumulation::fast, GemmRole::wgrad, 65536, true},
};

TEST(Policy, sums_are_fast_by_recipe_choice_role_and_length) {
  for (const AccumulationCase& c : kAccumulations) {
    EXPECT_EQ(accumulates_fast(c.recipe, c.chosen, c.role, c.k), c.fast)
        << static_cast<int>(c.recipe) << " " << (c.chosen ? enum_name(*c.chosen) : "auto") << " "
        << enum_name(c.role) << " " << c.k;
  }
  EXPECT_EQ(find_recipe("coat-fast").fast_accumulate, FastAccumulate::all);
  EXPECT_EQ(find_recipe("coat-static").fast_accumulate, FastAccumulate::all);
  EXPECT_EQ(find_recipe("coat").fast_accumulate, FastAccumulate::forward);
}

TEST(Policy, later_overrides_win_role_by_role) {
  const LinearFormats base = find_recipe("fp8_linear").linears;
  LinearFormats unquantized;
  unquantized.quantized = false;
  const std::vector<LinearOverride> overrides = {{.pattern = "layers.0.*", .formats = unquantized},
                                                 {.pattern = "*.down_proj",
                                                  .formats = base,
                                                  .x = operand_format(Dtype::e5m2, false),
                                                  .dy = operand_format(Dtype::hif8, true)}};
  EXPECT_FALSE(apply_overrides(base, {overrides[0]}).quantized);
  const LinearFormats down = apply_overrides(base, overrides);
  EXPECT_TRUE(down.quantized);
  EXPECT_EQ(down.x, (OperandFormat{Dtype::e5m2, 57344}));
  EXPECT_EQ(down.w, base.w);
  EXPECT_EQ(down.dy, (OperandFormat{Dtype::hif8, 224}));
  EXPECT_EQ(apply_overrides(base, {}), base);
}

// Lines of recipes and of formats, in every order.
TEST(Policy, a_line_of_formats_begins_with_what_stands_before_it) {
  const LinearFormats coat = find_recipe("coat").linears, plain = find_recipe("bf16").linears;
  const auto e4m3 = operand_format_from_name("e4m3", false),
             blocks = operand_format_from_name("e4m3/128x128", false),
             none = operand_format_from_name("none", false);
  const LinearOverride to_plain = {.pattern = "layers.0.*", .formats = plain},
                       to_coat = {.pattern = "*_proj", .formats = coat},
                       x = {.pattern = "*.q_proj", .x = e4m3}, w = {.pattern = "*", .w = blocks},
                       no_w = {.pattern = "layers.*", .w = none};
  const auto text = [&](const LinearFormats& base, const std::vector<LinearOverride>& lines) {
    const LinearFormats f = apply_overrides(base, lines);
    const auto name = [&](const OperandFormat& format) {
      return f.quantized ? operand_format_name(format) : "none";
    };
    return name(f.x) + " " + name(f.w) + " " + name(f.dy);
  };
  EXPECT_EQ(text(coat, {to_plain}), "none none none");
  EXPECT_EQ(text(coat, {to_plain, x}), "e4m3 none none");
  EXPECT_EQ(text(coat, {x, to_plain}), "none none none");
  EXPECT_EQ(text(coat, {to_plain, x, w}), "e4m3 e4m3/128x128 none");
  EXPECT_EQ(text(coat, {to_plain, w, to_coat}), "e4m3 e4m3 e5m2");
  EXPECT_EQ(text(coat, {w, to_plain, to_coat, no_w}), "e4m3 none e5m2");
  EXPECT_EQ(text(plain, {to_coat, no_w}), "e4m3 none e5m2");
  EXPECT_EQ(text(plain, {x}), "e4m3 none none");
  EXPECT_EQ(text(plain, {to_coat, to_plain, no_w, w}), "none e4m3/128x128 none");
}

TEST(Policy, an_operand_that_is_not_quantized_has_a_name) {
  const auto none = operand_format_from_name("none", true);
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->quantized);
  EXPECT_EQ(operand_format_name(*none), "none");
  EXPECT_TRUE(operand_format_from_name("e4m3", true)->quantized);
}

// An override of x or w holds for the backward pass too.
TEST(Policy, an_override_is_for_all_gemms_that_read_the_operand) {
  const LinearFormats& base = find_recipe("coat-block").linears;
  ASSERT_TRUE(base.backward_x && base.backward_w);
  const OperandFormat by_row = *operand_format_from_name("e4m3/row", false);
  EXPECT_EQ(operand_format_name(by_row), "e4m3/row");
  const LinearFormats x = apply_overrides(base, {{.pattern = "*", .x = by_row}});
  EXPECT_EQ(x.x, by_row);
  EXPECT_FALSE(x.backward_x);
  EXPECT_EQ(x.backward_w, base.backward_w);
}

TEST(Policy, an_unknown_recipe_is_named_with_the_known_ones) {
  const std::string error = test::error_of([] { find_recipe("fp9"); });
  EXPECT_EQ(error.rfind("[recipe] expected one of fp32, bf16", 0), 0u) << error;
  EXPECT_NE(error.find("got 'fp9'"), std::string::npos) << error;
}

// Two layers of one op, each with a backward node that reads its result.
Graph two_layers(OpCode op = OpCode::exp, const Attrs& attrs = {}) {
  Graph graph;
  graph.phase = Phase::typed;
  Builder b(graph);
  ValueId x = b.input(InputKind::batch, "x", {Dtype::f32, {4}});
  ValueId results[2];
  for (int layer = 0; layer < 2; ++layer) {
    b.tag = {.layer = layer, .role = Role::forward, .origin = "f"};
    results[layer] = x = b.emit1(op, attrs, {x});
  }
  for (const int layer : {1, 0}) {
    b.tag = {.layer = layer, .role = Role::backward, .origin = "f"};
    x = b.mul(x, results[layer]);
  }
  b.output("dx", x);
  return graph;
}

int count(const Graph& graph, OpCode op) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [&](const Node& n) { return n.op == op; }));
}

TEST(Recompute, stops_at_the_layers_that_it_is_told) {
  const Graph graph = two_layers();
  EXPECT_EQ(recompute(graph, {.what = Recompute::none}), graph);
  EXPECT_EQ(recompute(graph, {.what = Recompute::cheap}), graph);  // exp is not cheap
  EXPECT_EQ(count(recompute(graph, {.what = Recompute::full}), OpCode::exp), 4);
  EXPECT_EQ(count(recompute(graph, {.what = Recompute::full, .n_layers = 1}), OpCode::exp), 3);
}

TEST(Recompute, repeats_what_is_cheap_in_the_layers_that_it_keeps) {
  const Graph graph = two_layers(OpCode::gelu, GeluAttrs{});
  EXPECT_EQ(count(recompute(graph, {.what = Recompute::full, .n_layers = 1}), OpCode::gelu), 4);
}

TEST(Reorder, a_cycle_is_our_fault) {
  const Graph graph = two_layers();
  EXPECT_EQ(reorder(graph, {}), graph);
  EXPECT_THROW(reorder(graph, {{2, 0}}), Error);
}

}  // namespace
}  // namespace octet::passes_policy_test
