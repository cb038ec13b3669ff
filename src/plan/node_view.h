// A node with its graph and target: what a back end looks at when it chooses a kernel.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>

#include "ir/graph.h"
#include "ir/op_def.h"
#include "plan/target.h"

namespace octet {

struct NodeView {
  const Graph& graph;
  const Node& node;
  const Target& target;

  // By slot: whether an operand or result is there, and its type.
  bool has(size_t operand) const { return node.in(operand) != kNoValue; }
  bool gives(size_t result) const { return node.out(result) != kNoValue; }
  const TensorType& in(size_t slot) const { return graph.type(node.operands[slot]); }
  const TensorType& out(size_t slot) const { return graph.type(node.results[slot]); }
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

// Slots of the results that are the op's own: OpDef::amax_results has two more.
inline size_t own_results(const NodeView& view) {
  return std::min(view.node.results.size(), op_def(view.node.op).own_results());
}

// What quantize_groups and add_quantize make.
inline const TensorType& made_groups(const NodeView& view) {
  const bool adds = view.node.op == OpCode::add_quantize;
  return view.out(adds ? SlotId{AddQuantize::q} : SlotId{QuantizeGroups::q});
}

// The operands of attention or its gradient that are matrices of one type.
inline std::span<const SlotId> attention_matrices(const NodeView& view) {
  static constexpr SlotId kForward[] = {Attention::q, Attention::k, Attention::v};
  static constexpr SlotId kGradient[] = {AttentionGrad::q, AttentionGrad::k, AttentionGrad::v,
                                         AttentionGrad::o, AttentionGrad::dout};
  return op_def(view.node.op).is_gradient ? std::span<const SlotId>(kGradient) : kForward;
}

}  // namespace octet
