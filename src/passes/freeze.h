// Parameters that are not trained: Logical -> Logical, before autodiff. They become constants, in
// their places among the inputs: no gradient, no state and no master, and nothing of the backward
// pass that only they would need.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace octet {

// All parameters but these.
Graph freeze_parameters(Graph logical, const std::vector<std::string>& trained = {});

// Freezes names that match a pattern (passes/precision/policy.h). Throws Error{invalid_argument}
// naming a pattern that matches no parameter, and where none is left to train.
Graph freeze_matching(Graph logical, const std::vector<std::string>& patterns);

// Throws Error{invalid_argument}: the pattern of this key matches none of the graph's parameters,
// whose names it lists, each number as `*`.
[[noreturn]] void refuse_pattern(std::string_view key, std::string_view pattern,
                                 const Graph& graph);

}  // namespace octet
