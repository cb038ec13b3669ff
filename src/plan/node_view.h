// A node with its graph: what a back end looks at when it chooses a kernel.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "ir/graph.h"
#include "ir/op_def.h"

namespace octet {

struct NodeView {
  const Graph& graph;
  const Node& node;

  bool has(size_t operand) const {
    return operand < node.operands.size() && node.operands[operand] != kNoValue;
  }
  const TensorType& in(size_t i) const { return graph.type(node.operands[i]); }
  const TensorType& out(size_t i) const { return graph.type(node.results[i]); }
  // Absent operands are accepted.
  bool in_is(size_t i, std::initializer_list<Dtype> dtypes) const {
    return !has(i) || std::find(dtypes.begin(), dtypes.end(), in(i).dtype) != dtypes.end();
  }
  bool out_is(size_t i, std::initializer_list<Dtype> dtypes) const {
    return std::find(dtypes.begin(), dtypes.end(), out(i).dtype) != dtypes.end();
  }
  template <typename A>
  const A& attrs() const {
    return std::get<A>(node.attrs);
  }
};

// The results that are the op's own: OpDef::amax_results has two more.
inline size_t own_results(const NodeView& view) {
  return view.node.results.size() - (emits_amax(view.node.attrs) ? 2 : 0);
}

}  // namespace octet
