#include "passes/rewrite/reorder.h"

#include <queue>

#include "base/error.h"
#include "passes/rewrite/rewrite.h"

namespace octet {

Graph reorder(const Graph& graph, const std::vector<std::pair<NodeId, NodeId>>& first_then) {
  const size_t n_nodes = graph.nodes.size();
  ById<int> waits(n_nodes, 0);
  ById<std::vector<NodeId>> next(n_nodes);
  const auto depend = [&](NodeId first, NodeId then) {
    next[first].push_back(then);
    ++waits[then];
  };
  for (size_t n = 0; n < n_nodes; ++n) {
    for (const ValueId id : graph.nodes[n].operands) {
      const Node* producer = graph.producer(id);
      if (producer != nullptr) depend(graph.id(*producer), static_cast<NodeId>(n));
    }
  }
  for (const auto& [first, then] : first_then) depend(first, then);

  std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
  for (size_t n = 0; n < n_nodes; ++n) {
    if (waits[n] == 0) ready.push(static_cast<NodeId>(n));
  }
  Rewriter rewriter(graph);
  size_t n_done = 0;
  while (!ready.empty()) {
    const NodeId node = ready.top();
    ready.pop();
    rewriter.copy(graph.node(node));
    ++n_done;
    for (const NodeId then : next[node]) {
      if (--waits[then] == 0) ready.push(then);
    }
  }
  if (n_done != n_nodes)
    throw Error(ErrorCode::internal, "[reorder] graph {}: the order asked for is a cycle",
                graph.name);
  return rewriter.finish();
}

}  // namespace octet
