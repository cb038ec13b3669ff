// What `octet report` knows of a run: read from its folder alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "base/ordered_json.h"
#include "config/report.h"
#include "train/edge_telemetry.h"
#include "train/step_report.h"

namespace octet {

struct RunData {
  std::string name;                           // as the run was given
  std::vector<StepReport> steps;              // of metrics.jsonl, by step
  std::string recipe = "unknown";             // of config.yaml
  ConfigValues config = {};                   // empty: unreadable
  std::optional<int64_t> state_bytes = {};    // of the newest checkpoint's optim.safetensors
  int64_t n_spikes = 0;                       // of telemetry.jsonl
  std::vector<EdgeSample> edges = {};         // as well
  std::vector<OrderedJson> evaluations = {};  // of evaluations.jsonl
};

// Throws Error{bad_data} where the folder has no metrics.jsonl with at least one step. Else what is
// missing or cannot be read is left out, with a warning where it is there and cannot be read.
RunData read_run(Files& files, const std::string& path, const Log& log);

// NaN where there is nothing to take it from.
struct RunSummary {
  int64_t n_steps = 0;
  double train_loss = 0;  // mean of the last 20 finite ones
  double val_loss = 0, best_val_loss = 0;
  int64_t best_val_step = 0;
  double tokens_per_s = 0;  // median of the steps
  int64_t mem_bytes = 0;    // the most that a step had planned
  int64_t n_skipped = 0;
};
RunSummary summarize(const RunData& run);

// Four decimals; where a loss is so large that they say nothing, four digits in all.
std::string loss_number(double loss);

// Keys whose values are not the same in all runs that have a configuration; a value a run.
struct ConfigDifference {
  std::string key;
  std::vector<std::string> values;
};
std::vector<ConfigDifference> config_differences(const std::vector<RunData>& runs);

}  // namespace octet
