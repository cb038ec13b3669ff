// The order in which nodes run.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace octet {

// Keeps the graph's order, but moves each update node to the first place where its operands are
// ready and nothing else reads, any more, the inputs that it overwrites: so a gradient lives only
// until its update ("gradient release"). Clipping by the global norm makes every update wait for
// the norm by itself.
//
// Collectives are put together in runs, so that computing goes on beside them:
// - bucket: those that are ready wait until `bucket_bytes` or 16 of them have gathered, or until
//   nothing is left to compute without them;
// - what an update wants of a run stands behind the next run, so that the one is on its way while
//   the other's values are made;
// - the last gradient of a backward, where it is a bucket by itself (the embedding's): a GEMM for
//   another gradient is computed behind it, beside its sum;
// - prefetch: a parameter, or what is made of parameters alone, is gathered when the layer before
//   its reader's begins; maxima over the ranks that it is made with are taken a layer before that.
std::vector<NodeId> schedule(const Graph& graph, int64_t bucket_bytes = int64_t{64} << 20);

}  // namespace octet
