// The table of contents: every pass by name, and a driver that runs a list of them and verifies the
// graph after each.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace octet {

struct Pass {
  std::string_view name;
  Graph (*run)(const Graph& graph);
  std::string_view help;
};

std::span<const Pass> all_passes();

// Throws Error(invalid_argument) for a name that is not in the list.
Graph run_passes(const Graph& graph, const std::vector<std::string>& names);

}  // namespace octet
