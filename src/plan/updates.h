// Next values of states, made so that each can be written where the old value lies.
#pragma once

#include "ir/graph.h"

namespace octet {

// The parameter in whose update the node stands; nullptr where it stands in none.
const GraphInput* updated_parameter(const Graph& graph, const Node& node);
// The gradient that such a node reads: what the backward makes, or its sum over micro-batches or
// ranks. kNoValue where it reads none.
ValueId read_gradient(const Graph& graph, const Node& node);
// The node that made it, or the sum that it was rounded from (passes/parallel/shard_updates.h).
const Node* gradient_maker(const Graph& graph, ValueId gradient);

// A copy (stop_gradient, role `update`) for each output that cannot lie in its aliased input as it
// is: the next value of an input that is itself another input, that another input takes too, that
// is ready while nodes after it still read the old value, or whose op reads the old value and may
// not overwrite it; and an output that is an input which the graph updates. Where the next value is
// a shard of the input, it lies where rank `rank` has its own.
Graph copy_shared_updates(const Graph& graph, int64_t rank);

// Value that is made where this rank's shard of output.updates lies: the next value itself, or what
// an all_gather in place makes it of. kNoValue where nothing is.
ValueId new_shard(const Graph& graph, const GraphOutput& output);

// Behind copy_shared_updates: marks these gathers (CollectiveAttrs::in_place), as rank `rank` has
// them, where all shards are of one length, and what makes the shard is behind all other readers of
// the input and may overwrite what it reads of it itself. The shard needs no memory of its own then
// and no copy within the rank.
Graph gather_in_place(const Graph& graph, int64_t rank);

}  // namespace octet
