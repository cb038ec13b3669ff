#include "passes/freeze.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/verify.h"
#include "passes/autodiff.h"
#include "passes/rewrite/simplify.h"
#include "unit/base/error_of.h"

namespace octet::passes_freeze_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Two layers of one linear and a head, which is the table that x comes from.
Graph tied_layers() {
  Graph graph;
  Builder b(graph);
  const auto weight = [&](const std::string& name, Shape shape) {
    return b.input(InputKind::parameter, name, real_type(std::move(shape)));
  };
  const ValueId table = weight("embed.weight", {5, 4});
  const ValueId first = weight("layers.0.up.weight", {4, 4});
  const ValueId second = weight("layers.1.up.weight", {4, 4});
  const ValueId tokens = b.input(InputKind::batch, "tokens", {Dtype::i32, {3}});
  ValueId x = b.emit1(OpCode::embedding, NoAttrs{}, {table, tokens});
  for (const ValueId w : {first, second}) {
    b.tag = {.layer = w == first ? 0 : 1, .origin = "up"};
    x = b.gemm(x, w, {.trans_b = true, .role = GemmRole::forward});
  }
  b.tag = {.origin = "head"};
  const ValueId logits = b.gemm(x, table, {.trans_b = true, .role = GemmRole::forward});
  b.output("loss", b.reduce_sum(b.mul(logits, logits), {0, 1}));
  return graph;
}

std::vector<std::string> names_of_kind(const Graph& graph, InputKind kind) {
  std::vector<std::string> names;
  for (const GraphInput& input : graph.inputs) {
    if (input.kind == kind) names.push_back(input.name);
  }
  return names;
}

std::vector<std::string> gradient_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const GraphOutput& output : graph.outputs) {
    if (is_gradient_name(output.name)) names.push_back(output.name);
  }
  return names;
}

std::vector<std::string> backward_gemms(const Graph& graph, int layer) {
  std::vector<std::string> roles;
  for (const Node& node : graph.nodes) {
    if (node.op == OpCode::gemm && node.tag.layer == layer && node.tag.role == Role::backward)
      roles.emplace_back(enum_name(std::get<GemmAttrs>(node.attrs).role));
  }
  return roles;
}

Graph differentiated_but(const std::vector<std::string>& patterns) {
  Graph graph = simplify(autodiff(freeze_matching(tied_layers(), patterns)));
  verify(graph);
  return graph;
}

TEST(Freeze, makes_constants_of_the_parameters_whose_names_match) {
  const Graph graph = freeze_matching(tied_layers(), {"embed*", "*.1.*"});
  EXPECT_THAT(names_of_kind(graph, InputKind::constant),
              ElementsAre("embed.weight", "layers.1.up.weight"));
  EXPECT_THAT(names_of_kind(graph, InputKind::parameter), ElementsAre("layers.0.up.weight"));
  const Graph before = tied_layers();
  for (size_t i = 0; i < before.inputs.size(); ++i)
    EXPECT_EQ(graph.inputs[i].name, before.inputs[i].name);
}

TEST(Freeze, leaves_nothing_of_the_backward_pass_below_what_is_trained) {
  const Graph graph = differentiated_but({"embed*", "layers.0.*"});
  EXPECT_THAT(gradient_names(graph), ElementsAre("grad:layers.1.up.weight"));
  EXPECT_THAT(backward_gemms(graph, 0), IsEmpty());
  EXPECT_THAT(backward_gemms(graph, 1), ElementsAre("wgrad"));
}

TEST(Freeze, hands_gradients_through_what_is_frozen_above) {
  const Graph graph = differentiated_but({"layers.1.*"});
  EXPECT_THAT(gradient_names(graph), ElementsAre("grad:embed.weight", "grad:layers.0.up.weight"));
  EXPECT_THAT(backward_gemms(graph, 1), ElementsAre("dgrad"));
  EXPECT_EQ(backward_gemms(graph, 0).size(), 2u);
}

TEST(Freeze, tells_a_pattern_that_matches_no_parameter) {
  const auto error = [](const std::vector<std::string>& patterns) {
    return test::error_of([&] { freeze_matching(tied_layers(), patterns); });
  };
  EXPECT_EQ(error({"embed*", "vision.*"}),
            "train.freeze: expected patterns of parameters (embed.weight, layers.*.up.weight), got "
            "'vision.*', which matches none");
  EXPECT_EQ(error({"tokens"}),  // an input, and no parameter
            "train.freeze: expected patterns of parameters (embed.weight, layers.*.up.weight), got "
            "'tokens', which matches none");
}

TEST(Freeze, wants_a_parameter_left_to_train) {
  EXPECT_EQ(test::error_of([] {
              freeze_matching(tied_layers(), {"embed*", "layers.*"});
            }),
            "train.freeze: expected patterns that leave a parameter to train, got [embed*, "
            "layers.*]");
  EXPECT_THAT(names_of_kind(freeze_parameters(tied_layers()), InputKind::parameter), IsEmpty());
}

}  // namespace
}  // namespace octet::passes_freeze_test
