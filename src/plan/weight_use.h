// Which weights a function of several ranks takes to be whole, and which it leaves as this rank's
// shard alone, the rest being what it was before (passes/parallel/late_weights.h).
#pragma once

#include <set>
#include <string>

#include "ir/graph.h"

namespace octet {

// Parameters by name.
struct WeightUse {
  std::set<std::string> read;      // of more than this rank's shard, as they are
  std::set<std::string> gathered;  // before they are read
  std::set<std::string> left;      // as new shards
};
WeightUse weight_use(const Graph& graph);

}  // namespace octet
