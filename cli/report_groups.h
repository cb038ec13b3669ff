// Names of runs for readers, and which of them repeat one configuration with other seeds.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/report_data.h"

namespace octet {

struct RunGroup {
  std::string label;         // the recipe, and what tells it from others of this recipe
  std::vector<size_t> runs;  // whose configurations differ in train.seed, and in out at most
};

struct RunGroups {
  std::vector<std::string> labels;  // of the runs, no two the same
  std::vector<RunGroup> groups;     // by their first runs; no two labels the same
  size_t baseline = 0;              // the first with the recipe bf16, else the first
};

// A run without a readable configuration is a group of its own, and is named by its folder.
RunGroups group_runs(const std::vector<RunData>& runs);

}  // namespace octet
