#include "passes/precision/depthwise.h"

namespace octet {
namespace {

bool cuts(const Node& node) {
  const bool is_cut = node.op == OpCode::cast || node.op == OpCode::slice ||
                      node.op == OpCode::pad || node.op == OpCode::reshape;
  return is_cut && node.tag.role == Role::forward;
}

// The picture that a place of windows is cut from: what is given its extents, at the latest.
ValueId picture_of(const Graph& graph, ValueId id) {
  for (const Node* node = graph.producer(id); node != nullptr && cuts(*node);
       node = graph.producer(id)) {
    id = node->operands.front();
    if (node->op == OpCode::reshape) break;
  }
  return id;
}

// The matrix that a column is of; kNoValue where the value is none.
ValueId matrix_of(const Graph& graph, ValueId column) {
  for (const Node* node = graph.producer(column); node != nullptr && cuts(*node);
       node = graph.producer(column)) {
    column = node->operands.front();
    if (node->op == OpCode::slice) return column;
  }
  return kNoValue;
}

}  // namespace

DepthwiseProduct depthwise_product(const Graph& graph, const Node& node) {
  if (node.op != OpCode::mul || node.tag.role != Role::forward || node.tag.layer < 0) return {};
  const Node* repeats = graph.producer(node.in(Binary::b), OpCode::broadcast);
  if (repeats == nullptr || graph.type(node.out(Binary::y)).shape.size() != 4) return {};
  const ValueId weight = matrix_of(graph, repeats->operands.front());
  const bool is_one =
      weight != kNoValue && is_weight(graph, weight) && graph.type(weight).shape.size() == 2;
  return is_one ? DepthwiseProduct{weight, picture_of(graph, node.in(Binary::a))}
                : DepthwiseProduct{};
}

ValueId Windows::of(ValueId operand, ValueId source, ValueId value) {
  if (operand == source) return value;
  const auto [at, is_new] = cut_.try_emplace({operand, value}, kNoValue);
  if (!is_new) return at->second;
  const Graph& from = rewriter_.from();
  const Node& node = *from.producer(operand);
  const ValueId whole = of(node.operands.front(), source, value);
  Builder& b = rewriter_.builder();
  return at->second = b.emit_typed(node.op, node.attrs, {whole}, {from.type(operand).dtype})[0];
}

}  // namespace octet
