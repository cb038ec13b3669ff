// The passes of phase Sharded: a function's graph as each of D ranks runs it.
#pragma once

#include "ir/graph.h"
#include "passes/parallel/options.h"

namespace octet {

// Gradients are summed over the ranks as soon as they are made (below stage gradients: before the
// update), so that accumulators hold the ranks' sum: after every micro-batch, in every stage, so
// that all stages have the same bits. From stage optimizer on an update reads and writes this
// rank's shard. A new weight is gathered behind its update or, where nothing reads it there and
// shards are of one length, stays a shard: the output updates part of the input, and the function
// that begins the next step gathers it before its first reader (plan/updates.h). The global norm,
// flags of values that are not finite and histories of maxima are the ranks' common ones; of a
// shard that is summed in the same function the norm takes the squares that the sum adds up. Throws
// Error{invalid_argument} where a group of a quantized moment would lie on two ranks.
Graph shard_updates(const Graph& graph, const ParallelOptions& options);

// Behind shard_updates: every parameter becomes this rank's shard of it; what computes with it
// reads a gathered copy: one for the forward, another for the backward, each gathered before its
// first reader. Does nothing below stage parameters.
Graph gather_parameters(const Graph& graph, const ParallelOptions& options);

// A function that gathers what `update`, a function that updates as parallelize makes it, leaves as
// shards.
Graph gather_left(const Graph& update, const ParallelOptions& options);

// Both, as the options ask; the graph itself where they ask for nothing.
Graph parallelize(const Graph& graph, const ParallelOptions& options);

}  // namespace octet
