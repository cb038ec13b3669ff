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
    const NodeId producer = graph.values[static_cast<size_t>(id)].producer;
    if (producer == kNoNode || !is_view(graph.nodes[static_cast<size_t>(producer)])) return id;
    id = graph.nodes[static_cast<size_t>(producer)].in(Unary::x);
  }
}

}  // namespace octet
