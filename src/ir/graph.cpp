#include "ir/graph.h"

#include <fmt/format.h>

#include <algorithm>

namespace octet {

std::string layer_name(const Tag& tag) {
  return tag.layer_name.empty() ? fmt::format("layers.{}", tag.layer) : tag.layer_name;
}

std::string layer_text(const Tag& tag) {
  if (tag.layer < 0) return "";
  return tag.layer_name.empty() ? fmt::format("layer {}", tag.layer) : tag.layer_name;
}

GraphInput graph_input(ValueId value, InputKind kind, std::string name, Dtype dtype) {
  const bool lasts = kind == InputKind::state || kind == InputKind::derived;
  StateKey key = lasts ? state_key(name, dtype) : StateKey{};
  return {.value = value, .kind = kind, .name = std::move(name), .key = std::move(key)};
}

const GraphInput* Graph::find_input(std::string_view wanted) const {
  const auto it = std::find_if(inputs.begin(), inputs.end(),
                               [&](const GraphInput& input) { return input.name == wanted; });
  return it == inputs.end() ? nullptr : &*it;
}

const Node* Graph::producer(ValueId id) const {
  const NodeId node = id == kNoValue ? kNoNode : value(id).producer;
  return node == kNoNode ? nullptr : &this->node(node);
}

const Node* Graph::producer(ValueId id, OpCode op) const {
  const Node* node = producer(id);
  return node != nullptr && node->op == op ? node : nullptr;
}

const GraphInput* Graph::input_of(ValueId id) const {
  const auto it = std::lower_bound(
      inputs.begin(), inputs.end(), id,
      [](const GraphInput& input, ValueId wanted) { return input.value < wanted; });
  return it == inputs.end() || it->value != id ? nullptr : &*it;
}

const GraphOutput* Graph::find_output(std::string_view wanted) const {
  const auto it = std::find_if(outputs.begin(), outputs.end(),
                               [&](const GraphOutput& output) { return output.name == wanted; });
  return it == outputs.end() ? nullptr : &*it;
}

bool is_next_statistic(const Graph& graph, const GraphOutput& output) {
  const GraphInput* input = output.updates == kNoValue ? nullptr : graph.input_of(output.updates);
  return input != nullptr && input->kind == InputKind::statistic;
}

ById<std::vector<NodeId>> uses(const Graph& graph) {
  ById<std::vector<NodeId>> result(graph.values.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId operand : graph.nodes[n].operands) {
      if (operand != kNoValue) result[operand].push_back(static_cast<NodeId>(n));
    }
  }
  return result;
}

std::optional<double> filled_with(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(id, OpCode::fill);
  return node == nullptr ? std::nullopt : std::optional(std::get<FillAttrs>(node->attrs).value);
}

ResultTypes result_types(const Graph& graph, std::span<const ValueId> results) {
  ResultTypes types;
  for (const ValueId id : results)
    types.push_back(id == kNoValue ? ResultType(Dtype::f32) : ResultType(graph.type(id)));
  return types;
}

ValueIds trimmed(ValueIds slots) {
  while (!slots.empty() && slots.back() == kNoValue) slots.pop_back();
  return slots;
}

}  // namespace octet
