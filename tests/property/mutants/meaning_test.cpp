#include <gtest/gtest.h>

#include "property/mutants/faults.h"

namespace octet::mutants_meaning_test {
namespace {

using namespace mutants;
using random_graphs::graphs;
using random_graphs::RandomGraph;

// ----------------------------------------------------------------------------------------------

Fault swap_operands(OpCode op) {
  return [op](Graph& graph) {
    Node* node = find_node(graph, [&](const Node& n) {
      return n.op == op && graph.type(n.operands[0]) == graph.type(n.operands[1]) &&
             n.operands[0] != n.operands[1];
    });
    if (node != nullptr) std::swap(node->operands[0], node->operands[1]);
    return node != nullptr;
  };
}
Fault replace_op(OpCode op, OpCode other) {
  return [op, other](Graph& graph) {
    Node* node = find_node(graph, [&](const Node& n) { return n.op == op; });
    if (node != nullptr) node->op = other;
    return node != nullptr;
  };
}
template <typename A>
Fault change(OpCode op, const std::function<bool(const Graph&, const Node&, A&)>& edit) {
  return [op, edit](Graph& graph) {
    for (Node& node : graph.nodes) {
      if (node.op == op && edit(graph, node, std::get<A>(node.attrs))) return true;
    }
    return false;
  };
}

bool reshape_for_transpose(Graph& graph) {
  Node* node = find_node(graph, [&](const Node& n) {
    const auto lies_so = [&](ValueId id) { return !graph.type(id).layout.transposed; };
    return n.op == OpCode::transpose && lies_so(n.operands[0]) && lies_so(n.results[0]) &&
           graph.type(n.results[0]).n_elems() > 2;
  });
  if (node == nullptr) return false;
  node->op = OpCode::reshape;
  node->attrs = ReshapeAttrs{graph.type(node->results[0]).shape};
  return true;
}
bool next_axis(const Graph&, const Node&, IotaAttrs& a) {
  a.axis = (a.axis + 1) % std::ssize(a.shape);
  return a.shape.size() > 1;
}

// A pass with a fault: it merges nodes that differ in their attributes alone.
bool merge_without_attributes(Graph& graph) {
  Rewriter rewriter(graph);
  bool merged = false;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const auto twin = std::find_if(
        graph.nodes.begin(), graph.nodes.begin() + static_cast<int64_t>(i), [&](const Node& n) {
          return n.op == node.op && n.operands == node.operands && !(n.attrs == node.attrs) &&
                 graph.type(n.results[0]) == graph.type(node.results[0]);
        });
    if (twin - graph.nodes.begin() == static_cast<int64_t>(i)) {
      rewriter.copy(node);
    } else {
      rewriter.set(node.results, rewriter.map(twin->results));
      merged = true;
    }
  }
  graph = rewriter.finish();
  return merged;
}
// A pass with a fault: every sum with a constant counts as a sum with zero.
bool drop_constants(Graph& graph) {
  Rewriter rewriter(graph);
  bool dropped = false;
  for (const Node& node : graph.nodes) {
    const NodeId made = node.op == OpCode::add ? value(graph, node.operands[1]).producer : kNoNode;
    const Node* second = made == kNoNode ? nullptr : &graph.node(made);
    if (second == nullptr || second->op != OpCode::fill ||
        std::get<FillAttrs>(second->attrs).value == 0) {
      rewriter.copy(node);
    } else {
      rewriter.set(node.results[0], rewriter.map(node.operands[0]));
      dropped = true;
    }
  }
  graph = rewriter.finish();
  return dropped;
}
bool stale_update(Graph& graph) {
  for (GraphOutput& output : graph.outputs) {
    if (output.updates != kNoValue) output.value = output.updates;
  }
  return true;
}
bool outputs_exchanged(Graph& graph) {
  for (size_t i = 1; i < graph.outputs.size(); ++i) {
    GraphOutput &a = graph.outputs[i - 1], &b = graph.outputs[i];
    if (graph.type(a.value) != graph.type(b.value) || a.value == b.value) continue;
    if (a.updates != kNoValue || b.updates != kNoValue) continue;
    std::swap(a.value, b.value);
    return true;
  }
  return false;
}

std::vector<Mutant> faults_of_meaning() {
  return {
      {"swapped_sub", swap_operands(OpCode::sub)},
      {"swapped_div", swap_operands(OpCode::div)},
      {"swapped_less", swap_operands(OpCode::less)},
      {"add_for_sub", replace_op(OpCode::sub, OpCode::add)},
      {"sin_for_cos", replace_op(OpCode::cos, OpCode::sin)},
      {"max_for_sum", replace_op(OpCode::reduce_sum, OpCode::reduce_max)},
      {"transpose_that_moves_nothing", reshape_for_transpose},
      {"wrong_axis", change<IotaAttrs>(OpCode::iota, next_axis)},
      {"slice_off_by_one", change<SliceAttrs>(OpCode::slice,
                                              [](const Graph& g, const Node& n, SliceAttrs& a) {
                                                const Shape& x = g.type(n.operands[0]).shape;
                                                if (x.empty() || a.limit[0] >= x[0]) return false;
                                                return ++a.start[0], ++a.limit[0], true;
                                              })},
      {"pad_on_the_wrong_side", change<PadAttrs>(OpCode::pad,
                                                 [](const Graph&, const Node&, PadAttrs& a) {
                                                   if (a.low.empty() || a.low[0] == a.high[0])
                                                     return false;
                                                   return std::swap(a.low[0], a.high[0]), true;
                                                 })},
      {"constant_changed",
       change<FillAttrs>(OpCode::fill, [](const Graph&, const Node&,
                                          FillAttrs& a) { return a.value += 0.5, true; })},
      {"causal_forgotten", change<AttentionAttrs>(OpCode::attention,
                                                  [](const Graph&, const Node&, AttentionAttrs& a) {
                                                    if (a.mask == AttentionMask::full ||
                                                        a.q_len == 1 || a.q_len != a.kv_len ||
                                                        a.window > 0)
                                                      return false;
                                                    return a.mask = AttentionMask::full, true;
                                                  })},
      {"rope_turns_back",
       change<RopeAttrs>(OpCode::rope, [](const Graph&, const Node&,
                                          RopeAttrs& a) { return a.inverse = !a.inverse, true; })},
      {"merge_without_attributes", merge_without_attributes},
      {"drop_constants", drop_constants},
      {"stale_update", stale_update},
      {"outputs_exchanged", outputs_exchanged},
  };
}

TEST(Mutants, the_comparison_sees_faults_of_meaning) {
  for (const Mutant& mutant : faults_of_meaning()) {
    int n_placed = 0, n_seen = 0;
    for (const RandomGraph& g : graphs()) {
      Graph graph = g.graph;
      if (!mutant.fault(graph)) continue;
      ++n_placed;
      ASSERT_NO_THROW(verify(graph)) << mutant.name;
      const auto expected = reference::interpret(g.graph, g.inputs);
      n_seen += random_graphs::difference(reference::interpret(graph, g.inputs), expected) > 1e-6;
    }
    EXPECT_GE(n_placed, 5) << mutant.name;
    EXPECT_GE(n_seen * 10, n_placed * kSeenTenths)
        << mutant.name << ": " << n_seen << " of " << n_placed;
  }
}

}  // namespace
}  // namespace octet::mutants_meaning_test
