// Streams of a plan: collectives run on one of their own, beside what computes.
//
// Both run their steps in the plan's order. A run of collectives begins when all that stands before
// it has been computed; what computes waits where it says so (PlanStep::joins). Neither a buffer
// that a collective reads nor one that it writes is used otherwise until computing has waited for
// it and has finished it, and computing is never more than two runs of collectives ahead, so that
// few gradients wait in memory.
#pragma once

#include <vector>

#include "ir/op_def.h"

namespace octet {

struct Plan;

inline bool is_collective(OpCode op) {
  return op_def(op).is_collective;
}

// By step of this order: the last step during which its operands and results are in use: the step
// itself, or of a collective the one before the first that needs it.
ById<int> ends_of_use(const Graph& graph, const ById<NodeId>& order);

// Fills in each step's stream and what it waits for, and puts in the steps that finish collectives;
// `ends` as above.
void add_streams(Plan& plan, const ById<int>& ends);

// Throws Error(internal) where a step touches bytes that a collective may still use, or reads what
// it has not waited for.
void verify_streams(const Plan& plan);

}  // namespace octet
