// The table of contents: every pass by name, and a driver that runs a list of them and verifies the
// graph after each.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace octet {

enum class PassEffect : uint8_t {
  same_values,  // outputs are what they were, up to the order of sums
  rounds,       // chooses narrower types: outputs change by rounding
};

struct Pass {
  std::string_view name;
  std::function<Graph(const Graph& graph)> run;
  std::string_view help;
  std::optional<Phase> wants = {};  // the phase that the graph must be in; absent: any
  PassEffect effect = PassEffect::same_values;
};

// Passes without choices, and every recipe with its default options.
std::span<const Pass> all_passes();

// Throws Error(invalid_argument) for a name that is not in the list, or a graph in another phase
// than a pass wants.
Graph run_passes(const Graph& graph, const std::vector<std::string>& names);

}  // namespace octet
