// The amax of what an op has just stored, from the op itself instead of another pass over memory:
//
//   gate, up = gated_act_grad(...)        gate, up, a, f = gated_act_grad(...) {amax = true}
//   a, f = amax(gate, up, other)     ->   b, g = amax(a, f, other)
// An amax that is left with one op's maximum alone disappears. Same bits: the op's two results are
// what amax gives of its stored results (OpDef::amax_results). An op whose covered results are not
// all read by the same amax is left alone. A pass and no rule: two ops are changed together.
#pragma once

#include "ir/graph.h"

namespace octet {

Graph fuse_amax(const Graph& graph);

}  // namespace octet
