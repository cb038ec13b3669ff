// Next values of states, made so that each can be written where the old value lies.
#pragma once

#include "ir/graph.h"

namespace octet {

// A copy (stop_gradient, role `update`) for each output that cannot lie in its home as it is: the
// next value of an input that is itself another input, that another input takes too, that is ready
// while nodes after it still read the old value, or whose op reads the old value and may not
// overwrite it; and an output that hands out an input which the graph updates.
Graph copy_shared_updates(const Graph& graph);

// Behind copy_shared_updates: lets shards of rank `rank` lie in the input whose next value they are
// part of, where all ranks' shards are of one length. They need no memory of their own then, and no
// copy within the rank. Marked are (attribute in_place)
// - an all_gather of the shard of an input as it is;
// - an all_gather or put_shard that makes the next value of an input of a new shard, where what
//   makes that stands behind all others that read what it overwrites, and may overwrite what it
//   reads of it itself.
Graph place_shards(const Graph& graph, int64_t rank);

// What is made where this rank's shard of output.updates lies; kNoValue where nothing is.
ValueId new_shard(const Graph& graph, const GraphOutput& output);

}  // namespace octet
