// How far rounding alone may move what a node computes: the sum of magnitudes of what is added on
// the way to a value, which may be much larger than the value, where terms cancel.
#pragma once

#include "ir/graph.h"

namespace octet {

// A graph of primitives for a graph of one node: with its inputs, and by the name of each output
// that is a float, and of whose primitives the rules are known, one in f32 of its shape. Times a
// unit of rounding it is the error of a computation that rounds each step once, in any order of its
// sums (ir/error_bounds.h). Operands are exact: e = 0. Throws Error{invalid_argument} where the
// node has no decomposition.
Graph magnitude_graph(const Graph& one);

}  // namespace octet
