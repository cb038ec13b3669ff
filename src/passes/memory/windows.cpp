#include "passes/memory/windows.h"

namespace octet {

bool cuts_windows(const Graph& graph, const Node& node) {
  if (node.op == OpCode::slice || node.op == OpCode::pad)
    return graph.type(node.results.front()).shape.size() == 4;
  if (node.op != OpCode::cast && node.op != OpCode::reshape) return false;
  const Node* producer = graph.producer(node.operands.front());
  return producer != nullptr && cuts_windows(graph, *producer);
}

}  // namespace octet
