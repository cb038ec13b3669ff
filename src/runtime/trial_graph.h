// The graphs that collectives are tried in (runtime/collective_trial.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/collective_trial.h"

namespace octet {

std::string numbered(const char* name, size_t index);
bool is_max(const CollectiveKind& kind);
bool is_sum(const CollectiveKind& kind);
bool is_of_norm(const CollectiveKind& kind);  // of many tensors, whose norm it is

// A node of the kind for each size, from "x0" to "y0" and so on; of sharded_norm, and behind sums
// with squares, one norm of all, "norm0" to "norm2".
Graph trial_graph(const CollectiveKind& kind, int n_ranks, const std::vector<int64_t>& sizes);

}  // namespace octet
