// Next values of states, made so that each can be written where the old value lies.
#pragma once

#include "ir/graph.h"

namespace octet {

// A copy (stop_gradient, role `update`) for each output that cannot lie in its home as it is: the
// next value of an input that is itself another input, that another input takes too, that is ready
// while nodes after it still read the old value, or whose op reads the old value and may not
// overwrite it; and an output that hands out an input which the graph updates.
Graph copy_shared_updates(const Graph& graph);

}  // namespace octet
