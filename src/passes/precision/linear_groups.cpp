#include "passes/precision/linear_groups.h"

#include <algorithm>
#include <map>

#include "ir/op_def.h"
#include "passes/precision/store_frozen.h"
#include "passes/precision/store_groups.h"
#include "passes/rewrite/reorder.h"

namespace octet {
namespace {

// Each reader of a frozen weight in eight bits has a value of its own.
bool is_same_weight(const Graph& graph, ValueId a, ValueId b) {
  const GraphInput* frozen = frozen_weight(graph, a);
  return a == b || (frozen != nullptr && frozen == frozen_weight(graph, b));
}

const Node* dequantize_of(const Graph& graph, ValueId id) {
  return frozen_weight(graph, id) == nullptr ? nullptr : graph.producer(id);
}

bool is_linear(const Node& node) {
  return is_layer_gemm(node) && LinearGroups::gemm(node).role != GemmRole::other;
}

}  // namespace

bool is_weight(const Graph& graph, ValueId id) {
  const GraphInput* input = graph.input_of(id);
  return (input != nullptr && input->kind == InputKind::parameter) || frozen_weight(graph, id);
}

const Node* stored_weight(const Graph& graph, ValueId id, Dtype dtype) {
  const Node* dequantize = dequantize_of(graph, id);
  const bool fits = dequantize != nullptr &&
                    graph.type(dequantize->in(Dequantize::q)).has(Granularity::Kind::tensor) &&
                    graph.type(dequantize->in(Dequantize::q)).dtype == dtype;
  return fits ? dequantize : nullptr;
}

ValueId measured_operand(const Graph& graph, const LinearGroup& group, ValueId operand) {
  return is_repeated_layer(graph, operand) ? group.x : operand;
}

LinearGroups::LinearGroups(const Graph& graph, const LinearFormats& formats,
                           const std::vector<LinearOverride>& overrides)
    : graph_(graph), of_node_(graph.nodes.size(), -1) {
  std::map<std::pair<int, ValueId>, int> by_x;
  std::map<std::string, std::pair<int, ValueId>> by_name;  // the group, and the member's x
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!is_linear(node)) continue;
    const std::string name = linear_name(node);
    if (gemm(node).role != GemmRole::forward) {
      if (const auto it = by_name.find(name); it != by_name.end())
        add_backward(node, static_cast<NodeId>(n), it->second);
      continue;
    }
    const LinearFormats resolved = resolve(formats, overrides, name);
    if (!resolved.quantized) continue;
    auto [it, added] =
        by_x.try_emplace({node.tag.layer, node.in(Gemm::a)}, static_cast<int>(groups_.size()));
    if (!added && !(groups_[static_cast<size_t>(it->second)].formats == resolved)) {
      it->second = static_cast<int>(groups_.size());  // an overridden member leaves the group
      added = true;
    }
    if (added)
      groups_.push_back({.name = name,
                         .formats = resolved,
                         .members = {},
                         .x = node.in(Gemm::a),
                         .weights = {},
                         .gradients = {},
                         .backward = {}});
    groups_[static_cast<size_t>(it->second)].members.push_back(name);
    groups_[static_cast<size_t>(it->second)].weights.push_back(node.in(Gemm::b));
    by_name[name] = {it->second, node.in(Gemm::a)};
    of_node_[n] = it->second;
  }
}

// The operand that is neither x nor the weight is the gradient.
void LinearGroups::add_backward(const Node& node, NodeId n, const std::pair<int, ValueId>& member) {
  LinearGroup& group = groups_[static_cast<size_t>(member.first)];
  const auto known = [&](ValueId id) {
    return id == member.second || is_repeated_layer(graph_, id) ||
           std::ranges::any_of(group.weights,
                               [&](ValueId weight) { return is_same_weight(graph_, weight, id); });
  };
  const ValueId a = node.in(Gemm::a), gradient = known(a) ? node.in(Gemm::b) : a;
  if (std::find(group.gradients.begin(), group.gradients.end(), gradient) ==
      group.gradients.end()) {
    group.gradients.push_back(gradient);
  }
  group.backward.push_back(n);
  of_node_[static_cast<size_t>(n)] = member.first;
}

Graph wait_for_group_gradients(const Graph& graph, const LinearGroups& groups) {
  std::vector<std::pair<NodeId, NodeId>> first_then;
  for (const LinearGroup& group : groups.all()) {
    for (const ValueId gradient : group.gradients) {
      const NodeId producer = graph.value(gradient).producer;
      for (const NodeId node : group.backward) {
        if (producer != kNoNode) first_then.emplace_back(producer, node);
      }
    }
  }
  return reorder(graph, first_then);
}

}  // namespace octet
