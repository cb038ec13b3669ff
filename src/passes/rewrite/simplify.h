// Same meaning, fewer nodes. Each is Graph -> Graph, pure, and leaves inputs and outputs as they
// are.
#pragma once

#include <functional>

#include "ir/graph.h"

namespace octet {

// Drops nodes that no output depends on.
Graph remove_dead(Graph graph);

// Merges nodes that compute the same thing: equal op, attributes, operands and result types.
Graph merge_common(const Graph& graph);

// Drops what does nothing: transpose by the identity, reshape or broadcast to the same shape, cast
// to the same dtype, stop_gradient, x + 0, x * 1, two transposes or reshapes in a row.
Graph remove_identities(const Graph& graph);

// A sum of pieces that are padded with zeros so that they tile the whole becomes one concatenate.
// (-0 + 0 is +0: no op here tells them apart.)
Graph merge_pads(const Graph& graph);

// remove_identities, merge_pads, merge_common, remove_dead, until nothing changes.
Graph simplify(const Graph& graph);

// Replaces every node that `wanted` names by its op's decomposition, again and again until none is
// left.
Graph decompose(const Graph& graph, const std::function<bool(const Graph&, const Node&)>& wanted);
// Every op that has a decomposition.
Graph decompose_all(const Graph& graph);

}  // namespace octet
