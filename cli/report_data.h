// Data of a run for `octet report`: read from its folder alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "base/ordered_json.h"
#include "config/report.h"
#include "passes/scalify/count.h"
#include "train/edge_telemetry.h"
#include "train/run_samples.h"
#include "train/step_report.h"

namespace octet {

struct RunData {
  std::string name;                            // as the run was given
  std::vector<StepReport> steps;               // of metrics.jsonl, by step
  std::string recipe = "unknown";              // of config.yaml
  ConfigValues config = {};                    // empty: unreadable
  std::optional<int64_t> state_bytes = {};     // of the newest checkpoint's optim.safetensors
  std::optional<RescaleCounts> rescales = {};  // of plan.json
  int64_t n_spikes = 0;                        // of telemetry.jsonl
  std::vector<EdgeSample> edges = {};          // as well
  std::vector<OrderedJson> evaluations = {};   // of evaluations.jsonl
  std::vector<TextSample> samples = {};        // of samples.jsonl

  std::string seed() const;  // train.seed; "" without a configuration
};

// A run's folder, which a process may be writing. Of files of lines ended lines alone count.
class RunReader {
 public:
  // `path`: the folder, or metrics.jsonl in it.
  // Throws Error{bad_data} where the folder has no metrics.jsonl with at least one step. Else what
  // is missing or cannot be read is left out, with a warning where it is there and cannot be read.
  RunReader(Files& files, const std::string& path, const Log& log);

  const RunData& data() const { return data_; }
  // Takes the lines that metrics.jsonl has got since, or all of them anew where others were written
  // in their place; then the other files too. Whether there was anything new. Throws Error where
  // the file cannot be read, and keeps what it had.
  bool refresh();

 private:
  bool read_steps();

  Files& files_;
  const Log& log_;
  RunData data_;
  uint64_t n_read_ = 0;    // bytes of metrics.jsonl that were taken
  std::string last_ = {};  // the last of them
};

// Each folder once, by its first name; a warning where another name of it follows: a run counts
// once in the errors over seeds.
std::vector<std::string> distinct_runs(const std::vector<std::string>& paths, const Log& log);

// NaN where there is nothing to take it from.
struct RunSummary {
  int64_t n_steps = 0;
  double train_loss = 0;  // mean of the last 20 finite ones
  double val_loss = 0, best_val_loss = 0;
  int64_t best_val_step = 0;
  std::string_view unit = kTokens;
  double tokens_per_s = 0;  // of `unit`, over the time of all steps
  // Number of `unit`, evaluation and saving included; nothing where energy was not counted.
  std::optional<double> tokens_per_joule = {};
  int64_t mem_bytes = 0;  // the most that a step had planned
  int64_t n_skipped = 0;
};
RunSummary summarize(const RunData& run);

// Names of what evaluations of any of these runs tell beside the loss (StepReport::val_figures), in
// the order in which they come: "accuracy", "margin", ....
std::vector<std::string> figure_names(const std::vector<RunData>& runs);
// Figure of a step, and of the last that has it; nothing where none has.
std::optional<double> figure_of(const StepReport& step, const std::string& name);
std::optional<double> last_figure(const RunData& run, const std::string& name);

// Four decimals; where a loss is so large that they say nothing, four digits in all.
std::string loss_number(double loss);

// Keys whose values are not the same in all runs that have a configuration; a value a run.
struct ConfigDifference {
  std::string key;
  std::vector<std::string> values;
};
std::vector<ConfigDifference> config_differences(const std::vector<RunData>& runs);

}  // namespace octet
