// At least 500 random graphs: they print and parse back, and mean the same before and after each
// pass.
#include <gtest/gtest.h>

#include <functional>

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/autodiff.h"
#include "passes/driver.h"
#include "passes/memory/recompute.h"
#include "passes/rewrite/reorder.h"
#include "passes/rewrite/simplify.h"
#include "property/random_graphs/generator.h"
#include "property/random_graphs/meaning.h"

namespace octet::random_graphs_test {
namespace {

using random_graphs::difference;
using random_graphs::graphs;
using random_graphs::RandomGraph;
using reference::interpret;

// Sums in another order, and ops that compute in f32 (adamw_step) beside their decompositions.
constexpr double kReordered = 1e-9, kOptimizer = 1e-4;

bool has_optimizer(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const Node& node) { return node.op == OpCode::adamw_step; });
}

TEST(RandomGraphs, draw_every_op_at_least_20_times) {
  std::map<OpCode, int> drawn;
  EXPECT_GE(graphs().size(), 500u);
  for (const RandomGraph& g : graphs()) {
    EXPECT_GE(g.graph.nodes.size(), random_graphs::kMinNodes);
    EXPECT_LE(g.graph.nodes.size(), random_graphs::kMaxNodes);
    for (const Node& node : g.graph.nodes) ++drawn[node.op];
  }
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<OpCode>(i);
    if (op_def(op).is_abstract) continue;
    EXPECT_GE(drawn[op], 20) << op_def(op).name;
  }
}

TEST(RandomGraphs, are_legal_and_mostly_finite) {
  size_t n_finite = 0;
  for (const RandomGraph& g : graphs()) {
    ASSERT_NO_THROW(verify(g.graph)) << print(g.graph);
    const auto outputs = interpret(g.graph, g.inputs);
    bool finite = true;
    for (const auto& [name, values] : outputs) {
      for (const double x : values) finite = finite && std::isfinite(x);
    }
    n_finite += finite ? 1 : 0;
  }
  EXPECT_GT(n_finite, graphs().size() * 9 / 10);
}

TEST(RandomGraphs, print_and_parse_back_to_themselves) {
  for (const RandomGraph& g : graphs()) {
    const std::string text = print(g.graph);
    const Graph back = parse_graph(text, "text");
    ASSERT_EQ(back, g.graph) << text;
    EXPECT_EQ(print(back), text);
  }
}

void expect_same(const Graph& before, const Graph& after, const RandomGraph& g, double bound) {
  ASSERT_NO_THROW(verify(after)) << print(before);
  EXPECT_LE(difference(interpret(after, g.inputs), interpret(before, g.inputs)), bound)
      << print(before) << "\nbecame\n"
      << print(after);
}

TEST(RandomGraphs, mean_the_same_after_each_simplifying_pass) {
  for (const RandomGraph& g : graphs()) {
    const std::function<Graph(const Graph&)> passes[] = {remove_dead, merge_common,
                                                         remove_identities, merge_pads, simplify};
    for (const auto& pass : passes) {
      ASSERT_NO_FATAL_FAILURE(expect_same(g.graph, pass(g.graph), g, 0));
    }
  }
}

TEST(RandomGraphs, simplifying_twice_is_simplifying_once) {
  for (const RandomGraph& g : graphs()) {
    const Graph once = simplify(g.graph);
    EXPECT_EQ(simplify(once), once);
    EXPECT_LE(once.nodes.size(), g.graph.nodes.size());
  }
}

TEST(RandomGraphs, mean_the_same_after_reordering) {
  random_graphs::Random random(3);
  for (const RandomGraph& g : graphs()) {
    const int64_t n = std::ssize(g.graph.nodes);
    std::vector<std::pair<NodeId, NodeId>> pairs;
    for (int i = 0; i < 5; ++i) {
      const int64_t then = random_graphs::draw(random, 1, n - 1);
      const int64_t first = random_graphs::draw(random, 0, then - 1);
      pairs.emplace_back(static_cast<NodeId>(first), static_cast<NodeId>(then));
    }
    ASSERT_NO_FATAL_FAILURE(expect_same(g.graph, reorder(g.graph, pairs), g, 0));
  }
}

TEST(RandomGraphs, mean_the_same_after_decomposition) {
  for (const RandomGraph& g : graphs()) {
    if (g.graph.phase != Phase::logical) continue;
    const double bound = has_optimizer(g.graph) ? kOptimizer : kReordered;
    ASSERT_NO_FATAL_FAILURE(expect_same(g.graph, decompose_all(g.graph), g, bound));
  }
}

TEST(RandomGraphs, keep_their_forward_part_when_differentiated) {
  for (const RandomGraph& g : graphs()) {
    if (g.graph.phase != Phase::logical) continue;
    ASSERT_NO_FATAL_FAILURE(expect_same(g.graph, autodiff(g.graph), g, 0));
  }
}

TEST(RandomGraphs, have_the_gradients_that_differences_show) {
  int n_sloped = 0;
  for (const RandomGraph& g : graphs()) {
    if (g.kind != random_graphs::Kind::smooth) continue;
    const auto slopes = random_graphs::slopes(autodiff(g.graph), g.inputs, 5);
    EXPECT_LE(slopes.error(), 2e-4) << slopes.gradients << " " << slopes.differences << "\n"
                                    << print(g.graph);
    n_sloped += std::fabs(slopes.differences) > 1e-3 ? 1 : 0;
  }
  EXPECT_GT(n_sloped, 100);
}

TEST(RandomGraphs, mean_the_same_after_passes_over_their_gradients) {
  for (const RandomGraph& g : graphs()) {
    if (g.graph.phase != Phase::logical) continue;
    const Graph whole = autodiff(g.graph);
    const double bound = has_optimizer(g.graph) ? kOptimizer : kReordered;
    ASSERT_NO_FATAL_FAILURE(expect_same(whole, simplify(whole), g, 0));
    ASSERT_NO_FATAL_FAILURE(expect_same(whole, recompute_cheap(whole), g, 0));
    ASSERT_NO_FATAL_FAILURE(expect_same(whole, decompose_all(whole), g, bound));
  }
}

// A Typed graph rounds to f32 after each node: codes and steps may flip where sums are taken in
// another order.
TEST(RandomGraphs, every_pass_of_the_list_keeps_the_outputs) {
  int n_passes = 0;
  for (const Pass& pass : all_passes()) {
    if (pass.effect != PassEffect::same_values) continue;
    const Phase phase = pass.wants.value_or(Phase::logical);
    for (size_t i = 0; i < 90; ++i) {
      const RandomGraph& g = graphs()[i];
      if (g.graph.phase != phase) continue;
      const double bound = has_optimizer(g.graph) ? kOptimizer : kReordered;
      ASSERT_NO_FATAL_FAILURE(
          expect_same(g.graph, run_passes(g.graph, {std::string(pass.name)}), g, bound))
          << pass.name;
    }
    ++n_passes;
  }
  EXPECT_GE(n_passes, 6);
}

}  // namespace
}  // namespace octet::random_graphs_test
