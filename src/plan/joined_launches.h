// Steps that a back end may launch as one (LaunchArgs::joins_next).
//
// Beside each other: neighbours in the plan with kernels of one row that allow it
// (KernelChoice::may_join), none of which touches what another writes; of collectives those of one
// run.
// One behind the other, in a chain: neighbours for which the last one's row has a kernel
// (KernelRow::chain_kernel). What only they read is not stored. Observed steps are launched one by
// one.
#pragma once

#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace octet {

inline constexpr size_t kMaxJoined = 4, kMaxChained = 5;

// Positions in `order`, both included.
struct StepRun {
  int first = 0, last = 0;
};
struct StepChain : StepRun {
  std::string_view kernel;
};
// The chains of nodes in this order with these kernels, disjoint and in order. last_use: by value,
// the last step that reads it or a view of it; the number of steps for outputs. Their operands and
// results have to lie apart from each other until the last one has ended.
std::vector<StepChain> find_chains(const Graph& graph, const ById<NodeId>& order,
                                   const ById<KernelChoice>& kernels, const ById<int>& last_use,
                                   const Target& target);

// Neighbours with scratch that one launch may make beside each other: their scratch has to lie
// apart.
std::vector<StepRun> find_scratch_runs(const Graph& graph, const ById<NodeId>& order,
                                       const ById<KernelChoice>& kernels);

// By step: whether the next one may be launched with it; chains are those of the plan.
std::vector<bool> find_joined(const Plan& plan);

}  // namespace octet
