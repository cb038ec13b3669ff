// What the passes of phase Sharded share.
#pragma once

#include "ir/builder.h"

namespace octet {

// The input becomes this many elements, a shard of what it was; no more where it is one already.
void cut_input(Graph& graph, ValueId id, int64_t elements);

inline bool is_update(const Node& node) {
  return node.op == OpCode::adamw_step;
}

// The largest of the ranks' x.
ValueId max_over_ranks(Builder& builder, int64_t ranks, ValueId x);

}  // namespace octet
