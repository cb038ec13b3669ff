// A node with its graph and target: what a back end looks at when it chooses a kernel.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
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

// Type of the groups that quantize_groups and add_quantize make.
inline const TensorType& made_groups(const NodeView& view) {
  const bool adds = view.gives(AddQuantize::scale);
  return view.out(adds ? SlotId{AddQuantize::q} : SlotId{QuantizeGroups::q});
}

// Slots of attention or its gradient: the operands and how many results from the first on are
// matrices of one type, and where the operands are that say what queries see.
struct AttentionSlots {
  std::span<const SlotId> operands;
  size_t n_results;
  SlotId key_begins, key_ends, bias;
};
inline AttentionSlots attention_slots(const NodeView& view) {
  using Forward = Attention;
  using Grad = AttentionGrad;
  static constexpr SlotId kForward[] = {Forward::q, Forward::k, Forward::v};
  static constexpr SlotId kGradient[] = {Grad::q, Grad::k, Grad::v, Grad::o, Grad::dout};
  return op_def(view.node.op).is_gradient
             ? AttentionSlots{kGradient, 3, Grad::key_begins, Grad::key_ends, Grad::bias}
             : AttentionSlots{kForward, 1, Forward::key_begins, Forward::key_ends, Forward::bias};
}
// The type of all of these; nothing where they differ.
inline std::optional<Dtype> attention_dtype(const NodeView& view) {
  const AttentionSlots slots = attention_slots(view);
  const Dtype dtype = view.out(0).dtype;
  for (const SlotId i : slots.operands) {
    if (view.in(i).dtype != dtype) return std::nullopt;
  }
  for (size_t i = 0; i < slots.n_results; ++i) {
    if (view.out(i).dtype != dtype) return std::nullopt;
  }
  return dtype;
}
// True if the keys are a KV cache's.
inline bool is_cached_attention(const NodeView& view) {
  return !op_def(view.node.op).is_gradient && view.has(Attention::positions);
}

}  // namespace octet
