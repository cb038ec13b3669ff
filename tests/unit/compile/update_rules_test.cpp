#include "compile/update_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/builder.h"
#include "passes/lora.h"
#include "unit/base/error_of.h"

namespace octet::compile_update_rules_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two layers of a linear with a bias and one that lies as [inputs, outputs], between an embedding's
// and a head's weights.
Graph two_layers() {
  Graph graph;
  Builder b(graph);
  const auto weight = [&](const std::string& name, Shape shape) {
    return b.input(InputKind::parameter, name, real_type(std::move(shape)));
  };
  ValueId x = b.input(InputKind::batch, "x", real_type({3, 4}));
  for (const int layer : {0, 1}) {
    const std::string module = "net.h." + std::to_string(layer);
    b.tag = {.layer = layer, .origin = "q_proj"};
    const ValueId q = weight(module + ".attn.query.weight", {4, 4});
    x = b.gemm(x, q, {.trans_b = true, .role = GemmRole::forward});
    x = b.add(x, b.broadcast_along(weight(module + ".attn.query.bias", {4}), {3, 4}, 0));
    b.tag.origin = "down_proj";
    x = b.gemm(x, weight(module + ".mlp.fc.weight", {4, 4}), {.role = GemmRole::forward});
  }
  b.tag = {.origin = "lm_head"};
  x = b.gemm(x, weight("head.weight", {5, 4}), {.trans_b = true, .role = GemmRole::forward});
  b.output("loss", b.reduce_sum(x, {0, 1}));
  return graph;
}

std::vector<std::string> named(const std::string& pattern, UpdateKind kind = UpdateKind::sgd,
                               const Graph& graph = two_layers()) {
  OptimPolicy policy;
  policy.rules = {{pattern, kind, 0.5}};
  std::vector<std::string> names;
  for (const OptimRule& rule : for_parameters(policy, graph).rules) {
    EXPECT_EQ(rule.kind, kind);
    EXPECT_EQ(rule.lr, 0.5);
    names.push_back(rule.pattern);
  }
  return names;
}

TEST(UpdateRules, name_parameters_as_targets_of_adapters_name_linears) {
  const std::string q0 = "net.h.0.attn.query.weight", b0 = "net.h.0.attn.query.bias",
                    q1 = "net.h.1.attn.query.weight", b1 = "net.h.1.attn.query.bias";
  EXPECT_THAT(named("*.query.weight"), ElementsAre(q0, q1));
  EXPECT_THAT(named("query"), ElementsAre(q0, b0, q1, b1));
  EXPECT_THAT(named("que*"), ElementsAre(q0, b0, q1, b1));
  EXPECT_THAT(named("net.h.1.attn.query"), ElementsAre(q1, b1));
  EXPECT_THAT(named("layers.0.q_proj"), ElementsAre(q0, b0));
  EXPECT_THAT(named("layers.1.*_proj"), ElementsAre(q1, b1, "net.h.1.mlp.fc.weight"));
  EXPECT_THAT(named("head"), ElementsAre("head.weight"));
  EXPECT_EQ(named("*").size(), 7u);
  // Muon is of matrices; a whole name means what it says.
  EXPECT_THAT(named("query", UpdateKind::muon), ElementsAre(q0, q1));
  EXPECT_THAT(named("*0.attn.query.bias", UpdateKind::muon), ElementsAre(b0));
}

TEST(UpdateRules, name_adapters_by_the_linear_beside_them) {
  const Graph graph = add_lora(two_layers(), {.rank = 2, .targets = {"query"}});
  EXPECT_THAT(named("layers.0.q_proj", UpdateKind::sgd, graph),
              ElementsAre("net.h.0.attn.query.lora_A.weight", "net.h.0.attn.query.lora_B.weight"));
  EXPECT_EQ(named("query", UpdateKind::sgd, graph).size(), 4u);
}

TEST(UpdateRules, a_pattern_that_matches_no_parameter_is_refused_with_their_names) {
  for (const char* pattern : {"*.mpl.*", "qery", "layers.2.q_proj", "", "loss", "x"}) {
    const std::string error = test::error_of([&] { named(pattern); });
    EXPECT_THAT(error, HasSubstr("optim.rules: expected patterns of parameters "
                                 "(net.h.*.attn.query.weight, net.h.*.attn.query.bias, "
                                 "net.h.*.mlp.fc.weight, head.weight), got '"));
    EXPECT_THAT(error, HasSubstr(std::string("'") + pattern + "', which matches none"));
  }
  // Parameters that are not trained have no update.
  const Graph adapted = add_lora(two_layers(), {.rank = 2, .targets = {"query"}});
  EXPECT_THAT(test::error_of([&] { named("head", UpdateKind::sgd, adapted); }),
              HasSubstr("got 'head', which matches none"));
}

TEST(UpdateRules, know_which_linears_lie_as_inputs_and_outputs) {
  EXPECT_THAT(for_parameters({}, two_layers()).in_out,
              ElementsAre("net.h.0.mlp.fc.weight", "net.h.1.mlp.fc.weight"));
}

// Program by program the graph is the same, and so is what is made of the rules.
TEST(UpdateRules, are_made_once) {
  OptimPolicy policy;
  policy.rules = {{"query", UpdateKind::sgd, 2}, {"layers.1.*", UpdateKind::lamb, 1}};
  const OptimPolicy once = for_parameters(policy, two_layers());
  const OptimPolicy twice = for_parameters(once, two_layers());
  ASSERT_EQ(once.rules.size(), 7u);
  ASSERT_EQ(twice.rules.size(), once.rules.size());
  for (size_t i = 0; i < once.rules.size(); ++i)
    EXPECT_EQ(twice.rules[i].pattern, once.rules[i].pattern);
}

}  // namespace
}  // namespace octet::compile_update_rules_test
