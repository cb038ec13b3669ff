#include <gtest/gtest.h>

#include "property/mutants/faults.h"

namespace octet::mutants_gradients_test {
namespace {

using namespace mutants;
using random_graphs::graphs;
using random_graphs::RandomGraph;

// ------------------------------------------------------------------------------------------------

bool is_backward(const Node& node) {
  return node.tag.role == Role::backward;
}

// The last backward node of this kind is the one nearest to the parameters.
Node* last_backward(Graph& graph, const std::function<bool(const Node&)>& wanted) {
  Node* found = nullptr;
  for (Node& node : graph.nodes) {
    if (is_backward(node) && wanted(node)) found = &node;
  }
  return found;
}

bool forgotten_contribution(Graph& graph) {
  Node* node = last_backward(
      graph, [](const Node& n) { return n.op == OpCode::add && n.operands[0] != n.operands[1]; });
  if (node != nullptr) {
    node->op = OpCode::maximum;
    node->operands[1] = node->operands[0];
  }
  return node != nullptr;
}
bool forgotten_sign(Graph& graph) {
  Node* node = last_backward(graph, [](const Node& n) { return n.op == OpCode::neg; });
  if (node != nullptr) node->op = OpCode::stop_gradient;
  return node != nullptr;
}
bool wrong_factor(Graph& graph) {
  Node* node = last_backward(
      graph, [](const Node& n) { return n.op == OpCode::mul && n.operands[0] != n.operands[1]; });
  if (node != nullptr) node->operands[1] = node->operands[0];
  return node != nullptr;
}
bool doubled_seed(Graph& graph) {
  Node* node =
      find_node(graph, [](const Node& n) { return is_backward(n) && n.op == OpCode::fill; });
  if (node != nullptr) std::get<FillAttrs>(node->attrs).value = 2;
  return node != nullptr;
}
bool gradient_of_zero(Graph& graph) {
  for (GraphOutput& output : graph.outputs) {
    const NodeId made = value(graph, output.value).producer;
    if (!output.name.starts_with("grad:") || made == kNoNode) continue;
    Node& node = graph.node(made);
    if (node.op == OpCode::fill || node.results.size() != 1) continue;
    const Shape shape = graph.type(output.value).shape;
    node = Node{.op = OpCode::fill,
                .attrs = FillAttrs{.shape = shape},
                .operands = {},
                .results = node.results,
                .tag = node.tag};
    return true;
  }
  return false;
}

TEST(Mutants, the_slope_sees_wrong_gradients) {
  const Mutant mutants[] = {{"forgotten_contribution", forgotten_contribution},
                            {"forgotten_sign", forgotten_sign},
                            {"wrong_factor", wrong_factor},
                            {"doubled_seed", doubled_seed},
                            {"gradient_of_zero", gradient_of_zero}};
  for (const Mutant& mutant : mutants) {
    int n_placed = 0, n_seen = 0;
    for (const RandomGraph& g : graphs()) {
      if (g.kind != random_graphs::Kind::smooth) continue;
      Graph graph = autodiff(g.graph);
      const double size = std::fabs(random_graphs::slopes(graph, g.inputs, 5).differences);
      if (size < 1e-2 || !mutant.fault(graph)) continue;
      ++n_placed;
      ASSERT_NO_THROW(verify(graph)) << mutant.name;
      n_seen += random_graphs::slopes(graph, g.inputs, 5).error() > 2e-4;
    }
    EXPECT_GE(n_placed, 5) << mutant.name;
    EXPECT_GE(n_seen * 10, n_placed * kSeenTenths)
        << mutant.name << ": " << n_seen << " of " << n_placed;
  }
}

}  // namespace
}  // namespace octet::mutants_gradients_test
