#include "passes/rewrite/rewrite.h"

#include "base/error.h"

namespace octet {

Rewriter::Rewriter(const Graph& from, const std::function<bool(const GraphInput&)>& keeps)
    : from_(from), builder_(to_), map_(from.values.size(), kNoValue) {
  to_.name = from.name;
  to_.phase = from.phase;
  to_.values.reserve(from.values.size());
  to_.nodes.reserve(from.nodes.size());
  for (const GraphInput& input : from.inputs) {
    if (keeps && !keeps(input)) continue;
    set(input.value, builder_.input(input.kind, input.name, from.type(input.value)));
    to_.inputs.back().whole = input.whole;
  }
}

ValueId Rewriter::map(ValueId old_id) const {
  if (old_id == kNoValue) return kNoValue;
  const ValueId id = map_[old_id];
  CHECK(id != kNoValue);
  return id;
}

ValueIds Rewriter::map(const ValueIds& old_ids) const {
  ValueIds ids;
  ids.reserve(old_ids.size());
  for (const ValueId id : old_ids) ids.push_back(map(id));
  return ids;
}

void Rewriter::set(const ValueIds& old_ids, const ValueIds& new_ids) {
  CHECK(old_ids.size() == new_ids.size());
  for (size_t i = 0; i < old_ids.size(); ++i) {
    CHECK((old_ids[i] == kNoValue) == (new_ids[i] == kNoValue));
    if (old_ids[i] != kNoValue) set(old_ids[i], new_ids[i]);
  }
}

ValueIds Rewriter::copy(const Node& node) {
  builder_.tag = node.tag;
  ValueIds operands = map(node.operands);
  if (to_.phase != from_.phase || !reads_the_same(node, operands))
    return replace(node, node.op, node.attrs, std::move(operands));
  ValueIds results = append(node, std::move(operands));
  set(node.results, results);
  return results;
}

ValueIds Rewriter::replace(const Node& node, OpCode op, Attrs attrs, ValueIds operands) {
  ValueIds results =
      builder_.emit_typed(op, std::move(attrs), std::move(operands), result_types(from_, node));
  set(node.results, results);
  return results;
}

bool Rewriter::reads_the_same(const Node& node, const ValueIds& operands) const {
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] != kNoValue && to_.type(operands[i]) != from_.type(node.operands[i]))
      return false;
  }
  return true;
}

ValueIds Rewriter::append(const Node& node, ValueIds operands) {
  Node copied{.op = node.op,
              .attrs = node.attrs,
              .operands = std::move(operands),
              .results = node.results,
              .tag = node.tag};
  for (ValueId& id : copied.results) {
    if (id == kNoValue) continue;
    Value value = from_.value(id);
    value.producer = static_cast<NodeId>(to_.nodes.size());
    id = static_cast<ValueId>(to_.values.size());
    to_.values.push_back(std::move(value));
  }
  ValueIds results = copied.results;
  to_.nodes.push_back(std::move(copied));
  return results;
}

Graph Rewriter::finish() {
  for (const GraphOutput& output : from_.outputs) {
    builder_.output(output.name, map(output.value), map(output.updates));
  }
  return std::move(to_);
}

Graph filter_nodes(const Graph& graph, const std::function<bool(NodeId)>& keep) {
  Rewriter rewriter(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (keep(static_cast<NodeId>(n))) rewriter.copy(graph.nodes[n]);
  }
  return rewriter.finish();
}

}  // namespace octet
