// The nodes of an update rule (optim/rules/rule.h) in the place of each `update`.
#pragma once

#include "ir/graph.h"
#include "optim/optimizer.h"

namespace octet {

// `policy` is the one that they were built with. Typed -> Typed, Sharded -> Sharded.
Graph expand_updates(const Graph& graph, const OptimPolicy& policy);

}  // namespace octet
