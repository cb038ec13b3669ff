#include "passes/memory/windows.h"

namespace octet {

bool cuts_windows(const Graph& graph, const Node& node) {
  if (node.op == OpCode::slice || node.op == OpCode::pad || node.op == OpCode::broadcast)
    return graph.type(node.results.front()).shape.size() == 4;
  if (node.op != OpCode::cast && node.op != OpCode::reshape) return false;
  const Node* producer = graph.producer(node.operands.front());
  return producer != nullptr && cuts_windows(graph, *producer);
}

bool unfolds(const Graph& graph, const Node& node) {
  if (cuts_windows(graph, node)) return true;
  if (node.op == OpCode::concatenate) return graph.type(node.results.front()).shape.size() == 4;
  const Node* producer =
      node.op == OpCode::reshape ? graph.producer(node.operands.front()) : nullptr;
  return producer != nullptr && unfolds(graph, *producer);
}

}  // namespace octet
