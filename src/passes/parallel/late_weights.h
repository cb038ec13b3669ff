// Weights whose new shards are gathered by the next step, beside its forward, and not behind their
// update, which nothing hides.
#pragma once

#include <map>
#include <set>

#include "ir/graph.h"
#include "passes/parallel/options.h"

namespace octet {

struct LateWeights {
  std::set<ValueId> next;      // next values of weights that stay shards
  std::set<ValueId> gathered;  // weights that this function gathers before it reads them
};

// Late are weights whose shards are all of one length, whose new value nothing reads where it is
// made but for the maximum of shards, nor the old one behind it. They are gathered where a step
// begins: with its update in the same function, or with gradients that overwrite accumulators
// (`gradients`: -> the accumulator that they are added to). What reads weights elsewhere has them
// gathered first (plan/weight_use.h).
LateWeights find_late_weights(const Graph& graph, const std::map<ValueId, ValueId>& gradients,
                              const ParallelOptions& options);

// Behind shard_updates, of a function's parameters alone: gathers those that may be late.
Graph gather_late_weights(const Graph& parameters, const ParallelOptions& options);

}  // namespace octet
