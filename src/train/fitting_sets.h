// Which settings fit a device's memory, and how fast they would be: sets of recipe, optimizer
// states, masters, adapters and batch, each planned. Nothing runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/files.h"
#include "config/run_config.h"
#include "plan/catalogue.h"
#include "train/step_speed.h"

namespace octet {

struct FittingSet {
  std::vector<std::string> sets;  // as --set takes them
  int64_t planned_bytes = 0;
  double tokens_per_s = 0;  // predicted (train/step_speed.h)
};

// The run with these settings beside its own. Throws Error{invalid_argument} for some of them.
using ConfigWith = std::function<RunConfig(const std::vector<std::string>& sets)>;

struct FittingSets {
  // The fastest batch of each choice of recipe, states, masters and adapters, with as much
  // recomputation as need be; the fastest first. Left out: what is slower and takes no less memory
  // than another of as few settings. A step has as many tokens as the run's own, but where the
  // batch has an odd factor: smaller micro-batches are accumulated.
  std::vector<FittingSet> sets;
  int64_t n_planned = 0;  // plans that were looked at
};

// Throws what a run would throw for its own settings, but for memory.
FittingSets fitting_sets(const Files& files, const ConfigWith& config_with,
                         const Catalogue& catalogue, const CardRates& card, int64_t limit_bytes);

}  // namespace octet
