#include <gtest/gtest.h>

#include "property/mutants/faults.h"

namespace octet::mutants_structural_test {
namespace {

using namespace mutants;
using random_graphs::graphs;
using random_graphs::RandomGraph;

// ----------------------------------------------------------------------------------------------

bool drop_node(Graph& graph) {
  graph.nodes.erase(graph.nodes.begin() + std::ssize(graph.nodes) / 2);
  return true;
}
bool wrong_order(Graph& graph) {
  for (size_t i = 1; i < graph.nodes.size(); ++i) {
    const auto& in = graph.nodes[i].operands;
    const ValueId made = graph.nodes[i - 1].results[0];
    if (std::find(in.begin(), in.end(), made) == in.end()) continue;
    std::swap(graph.nodes[i - 1], graph.nodes[i]);
    for (const size_t n : {i - 1, i}) {
      for (const ValueId id : graph.nodes[n].results) {
        if (id != kNoValue) value(graph, id).producer = static_cast<NodeId>(n);
      }
    }
    return true;
  }
  return false;
}
bool value_made_twice(Graph& graph) {
  graph.nodes.push_back(graph.nodes.front());
  return true;
}
bool wrong_shape(Graph& graph) {
  value(graph, graph.nodes.back().results[0]).type.shape.push_back(2);
  return true;
}
bool wrong_dtype(Graph& graph) {
  TensorType& type = value(graph, graph.nodes.back().results[0]).type;
  type.dtype = is_float(type.dtype) ? Dtype::i32 : Dtype::f32;
  return true;
}
bool wrong_phase(Graph& graph) {
  for (Value& v : graph.values) {
    if (v.type.dtype != Dtype::real && v.type.dtype != Dtype::f32) continue;
    v.type.dtype = graph.phase == Phase::logical ? Dtype::f32 : Dtype::real;
    return true;
  }
  return false;
}
bool operand_out_of_range(Graph& graph) {
  Node* node = find_node(graph, [](const Node& n) { return !n.operands.empty(); });
  if (node != nullptr) node->operands[0] = static_cast<ValueId>(graph.values.size());
  return node != nullptr;
}
bool operand_missing(Graph& graph) {
  Node* node = find_node(graph, [](const Node& n) {
    return n.operands.size() == op_def(n.op).operands.n_required() && !n.operands.empty();
  });
  if (node != nullptr) node->operands.pop_back();
  return node != nullptr;
}
bool attributes_of_another_op(Graph& graph) {
  Node* node = find_node(graph, [](const Node& n) {
    return n.op < OpCode::gemm && !std::holds_alternative<RopeAttrs>(n.attrs);
  });
  if (node != nullptr) node->attrs = RopeAttrs{};
  return node != nullptr;
}
bool wrong_producer(Graph& graph) {
  value(graph, graph.nodes.back().results[0]).producer -= 1;
  return true;
}
bool input_named_twice(Graph& graph) {
  if (graph.inputs.size() < 2) return false;
  graph.inputs[1].name = graph.inputs[0].name;
  return true;
}
bool update_of_a_batch_input(Graph& graph) {
  for (GraphInput& input : graph.inputs) {
    if (input.name == "buffer") input.kind = InputKind::batch;
  }
  return true;
}
bool update_of_another_type(Graph& graph) {
  for (GraphInput& input : graph.inputs) {
    if (input.name == "buffer") value(graph, input.value).type.shape.push_back(1);
  }
  return true;
}

const Mutant kStructural[] = {
    {"drop_node", drop_node},
    {"wrong_order", wrong_order},
    {"value_made_twice", value_made_twice},
    {"wrong_shape", wrong_shape},
    {"wrong_dtype", wrong_dtype},
    {"wrong_phase", wrong_phase},
    {"operand_out_of_range", operand_out_of_range},
    {"operand_missing", operand_missing},
    {"attributes_of_another_op", attributes_of_another_op},
    {"wrong_producer", wrong_producer},
    {"input_named_twice", input_named_twice},
    {"update_of_a_batch_input", update_of_a_batch_input},
    {"update_of_another_type", update_of_another_type},
};

TEST(Mutants, the_verifier_sees_every_structural_fault) {
  for (const Mutant& mutant : kStructural) {
    int n_placed = 0;
    for (const RandomGraph& g : graphs()) {
      Graph graph = g.graph;
      if (!mutant.fault(graph)) continue;
      ++n_placed;
      EXPECT_THROW(verify(graph), Error) << mutant.name << " in " << g.graph.name;
    }
    EXPECT_GE(n_placed, 100) << mutant.name;
  }
}

}  // namespace
}  // namespace octet::mutants_structural_test
