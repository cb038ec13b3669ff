// Moves nodes without changing what they compute.
#pragma once

#include <utility>
#include <vector>

#include "ir/graph.h"

namespace octet {

// The same nodes in the same order as far as possible, but node .second of each pair after node
// .first. Throws Error(internal) where that is a cycle.
Graph reorder(const Graph& graph, const std::vector<std::pair<NodeId, NodeId>>& first_then);

}  // namespace octet
