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
#include "passes/parallel/options.h"

namespace octet {

enum class PassEffect : uint8_t {
  same_values,  // outputs are what they were, up to the order of sums
  rounds,       // chooses narrower types: outputs change by rounding
};

struct Pass {
  std::string_view name;
  std::function<Graph(const Graph& graph)> run;
  std::string_view help = {};
  std::optional<Phase> wants = {};  // the phase that the graph must be in; absent: any
  PassEffect effect = PassEffect::same_values;
};

// Record of what a pass did to a graph.
struct PassRecord {
  std::string graph, pass;
  size_t nodes_before = 0, nodes_after = 0;
  double time_ms = 0;  // verification included
};
using PassLog = std::vector<PassRecord>;

// Runs a pass, or a list of them, and verifies after each. Throws Error(invalid_argument) for a
// graph in another phase than a pass wants.
Graph run_pass(const Pass& pass, const Graph& graph, PassLog* log = nullptr);
Graph run_passes(const Graph& graph, std::span<const Pass> passes, PassLog* log = nullptr);

// Passes without choices, and every recipe with its default options.
std::span<const Pass> all_passes();

// The same by name; Error(invalid_argument) too for a name that is not in the list. `parallel`: for
// gather_parameters and shard_updates, which do nothing for one rank.
Graph run_passes(const Graph& graph, const std::vector<std::string>& names,
                 const ParallelOptions& parallel = {});

}  // namespace octet
