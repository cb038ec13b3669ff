// The order in which nodes run.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace octet {

// Keeps the graph's order, but moves each update node to the first place where its operands are
// ready and nothing else reads, any more, the inputs that it overwrites: so a gradient lives only
// until its update ("gradient release"). Clipping by the global norm makes every update wait for
// the norm by itself.
std::vector<NodeId> schedule(const Graph& graph);

}  // namespace octet
