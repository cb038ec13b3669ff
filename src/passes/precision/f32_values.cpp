#include "passes/precision/f32_values.h"

#include <algorithm>
#include <set>

#include "ir/op_def.h"
#include "ir/states.h"

namespace octet {
namespace {

// Origin of a value: constants and the batch alone, f32 values and these, or anything else.
enum class Origin : uint8_t { constant, f32, other };

class Origins {
 public:
  explicit Origins(const Graph& graph) : graph_(graph), by_value_(graph.values.size()) {
    for (const GraphInput& input : graph.inputs)
      at(input.value) = input.kind == InputKind::batch || is_number(input.value) ? Origin::constant
                        : is_f32_input(input.kind)                               ? Origin::f32
                                                                                 : Origin::other;
    for (const Node& node : graph.nodes) {
      const Origin origin = of(node);
      for (size_t i = 0; i < node.results.size(); ++i) {
        if (node.results[i] == kNoValue) continue;
        const bool is_statistic = op_def(node.op).statistics.contains(i);
        at(node.results[i]) = is_number(node.results[i]) ? Origin::constant
                              : is_statistic             ? Origin::f32
                                                         : origin;
      }
    }
  }
  Origin operator[](ValueId id) const { return by_value_[id]; }

  static bool is_f32_input(InputKind kind) {
    return kind == InputKind::statistic || kind == InputKind::state;
  }

 private:
  Origin& at(ValueId id) { return by_value_[id]; }
  bool is_float_value(ValueId id) const {
    return id != kNoValue && is_float(graph_.type(id).dtype);
  }
  bool is_number(ValueId id) const { return graph_.type(id).shape.empty(); }

  Origin of(const Node& node) const {
    if (node.op == OpCode::power_of_two) return Origin::f32;
    if (node.op == OpCode::rescale) return (*this)[node.in(Rescale::x)];
    if (node.op == OpCode::cast && is_float_value(node.in(Unary::x)))
      return node.tag.role == Role::forward ? Origin::f32 : Origin::other;
    Origin origin = Origin::constant;
    for (const ValueId id : node.operands)
      if (is_float_value(id)) origin = std::max(origin, (*this)[id]);
    return origin;
  }

  const Graph& graph_;
  ById<Origin> by_value_;
};

}  // namespace

ById<bool> f32_values(const Graph& graph) {
  const Origins origins(graph);
  const auto readers = uses(graph);
  std::set<ValueId> graph_outputs;
  for (const GraphOutput& output : graph.outputs)
    if (!is_gradient_name(output.name)) graph_outputs.insert(output.value);
  ById<bool> is_f32(graph.values.size(), false);
  // True if a node whose results are decided reads the value as f32.
  const auto is_read_as_f32 = [&](const Node& node, ValueId id) {
    if (node.op == OpCode::cross_entropy_grad) return node.in(CrossEntropyGrad::dloss) == id;
    if (node.op == OpCode::rescale && node.in(Rescale::x) != id) return true;
    return std::ranges::all_of(node.results, [&](ValueId y) {
      return y == kNoValue || !is_float(graph.type(y).dtype) || graph.type(y).shape.empty() ||
             is_f32[y];
    });
  };
  const auto decide = [&](ValueId id) {
    const auto& nodes = readers[id];
    const bool fits =
        nodes.empty() ? graph_outputs.contains(id) : std::ranges::all_of(nodes, [&](NodeId n) {
          return is_read_as_f32(graph.node(n), id);
        });
    is_f32[id] = origins[id] == Origin::f32 || (origins[id] == Origin::constant && fits);
  };
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    for (const ValueId id : node->results)
      if (id != kNoValue) decide(id);
  }
  for (const GraphInput& input : graph.inputs) decide(input.value);
  return is_f32;
}

}  // namespace octet
