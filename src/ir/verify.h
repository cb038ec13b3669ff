// Checks that a graph is whole and legal in its phase. Throws Error(internal) that names the node
// and the rule broken.
//
//   every phase: indices in range, each value produced once, nodes in topological order, operand
//   counts, result types as
//     the op infers them (any float where it infers `real`), attributes of the op's kind, inputs
//     and outputs named once, an `updates` output has its input's type and that input is a
//     parameter or state
//   logical: every float is `real`
//   typed and later: no float is `real`
//   what is quantized has a granularity, nothing else has, and each reader has its scales or moves
//   it without a change (check_scales)
#pragma once

#include "ir/graph.h"

namespace octet {

void verify(const Graph& graph);

}  // namespace octet
