#include "passes/rewrite.h"

#include "base/error.h"

namespace octet {

Rewriter::Rewriter(const Graph& from)
    : from_(from), builder_(to_), map_(from.values.size(), kNoValue) {
  to_.name = from.name;
  to_.phase = from.phase;
  for (const GraphInput& input : from.inputs) {
    set(input.value, builder_.input(input.kind, input.name, from.type(input.value)));
  }
}

ValueId Rewriter::map(ValueId old_id) const {
  if (old_id == kNoValue) return kNoValue;
  const ValueId id = map_[static_cast<size_t>(old_id)];
  CHECK(id != kNoValue);
  return id;
}

std::vector<ValueId> Rewriter::map(const std::vector<ValueId>& old_ids) const {
  std::vector<ValueId> ids;
  ids.reserve(old_ids.size());
  for (const ValueId id : old_ids) ids.push_back(map(id));
  return ids;
}

void Rewriter::set(const std::vector<ValueId>& old_ids, const std::vector<ValueId>& new_ids) {
  CHECK(old_ids.size() == new_ids.size());
  for (size_t i = 0; i < old_ids.size(); ++i) {
    CHECK((old_ids[i] == kNoValue) == (new_ids[i] == kNoValue));
    if (old_ids[i] != kNoValue) set(old_ids[i], new_ids[i]);
  }
}

std::vector<ValueId> Rewriter::copy(const Node& node) {
  builder_.tag = node.tag;
  auto results =
      builder_.emit_typed(node.op, node.attrs, map(node.operands), result_dtypes(from_, node));
  set(node.results, results);
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
