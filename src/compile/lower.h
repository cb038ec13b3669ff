// The last pass before planning: what the back end has no kernel for is replaced by its op's
// decomposition, again and again, until every node has a kernel or is a primitive.
#pragma once

#include "ir/graph.h"
#include "plan/catalogue.h"

namespace octet {

// The graph as it is where nothing is to be replaced. Throws Error{invalid_argument} where its
// phase is not lowered.
Graph lower(const Graph& fused, const Catalogue& catalogue);

}  // namespace octet
