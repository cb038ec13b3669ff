// Views: results that are their operand's bytes under another shape. They do not run.
#pragma once

#include "ir/graph.h"
#include "ir/ops/slots.h"

namespace octet {

inline bool is_view(const Node& node) {
  return node.op == OpCode::reshape;
}

// The value whose bytes this one is.
inline ValueId view_root(const Graph& graph, ValueId id) {
  for (;;) {
    const Node* producer = graph.producer(id);
    if (producer == nullptr || !is_view(*producer)) return id;
    id = producer->in(Unary::x);
  }
}

}  // namespace octet
