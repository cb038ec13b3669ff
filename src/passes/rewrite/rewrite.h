// Rebuilds a graph node by node: what every pass is written with.
//
// The new graph has the old one's name and phase, and its inputs with their kinds and names. A pass
// walks the old nodes in order and for each calls copy(), or emits others through builder() and
// says what replaces the old results with set().
#pragma once

#include <functional>
#include <vector>

#include "ir/builder.h"

namespace octet {

class Rewriter {
 public:
  // With all inputs, or those that `keeps` names.
  explicit Rewriter(const Graph& from, const std::function<bool(const GraphInput&)>& keeps = {});

  Builder& builder() { return builder_; }
  const Graph& from() const { return from_; }

  // The new value of an old one (kNoValue stays kNoValue).
  ValueId map(ValueId old_id) const;
  ValueIds map(const ValueIds& old_ids) const;
  void set(ValueId old_id, ValueId new_id) { map_[old_id] = new_id; }
  void set(const ValueIds& old_ids, const ValueIds& new_ids);

  // The old node as it is, reading mapped operands; result types are kept. Returns the new results
  // and sets the map.
  ValueIds copy(const Node& node);

  // Another node in its place, whose results are of the same types.
  ValueIds replace(const Node& node, OpCode op, Attrs attrs, ValueIds operands);

  // Copies the outputs through the map and hands the new graph out.
  Graph finish();
  // The same without the old outputs; the caller has made its own.
  Graph finish_without_outputs() { return std::move(to_); }

 private:
  bool reads_the_same(const Node& node, const ValueIds& operands) const;
  // Does what emit_typed would do, were its types not known.
  ValueIds append(const Node& node, ValueIds operands);

  const Graph& from_;
  Graph to_;
  Builder builder_;
  ById<ValueId> map_;
};

// Rebuilds the graph from the nodes that `keep` names, in order (dead values disappear).
Graph filter_nodes(const Graph& graph, const std::function<bool(NodeId)>& keep);

}  // namespace octet
