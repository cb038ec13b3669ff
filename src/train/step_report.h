// The report of one step of a run: to metrics.jsonl, to the terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/edge_statistics.h"
#include "runtime/nonfinite.h"
#include "train/audit_difference.h"

namespace octet {

// Loss scaling as a step found it: the scale, the good steps that make it double, and how many of
// them there were.
struct LossScaleReport {
  float scale = 0, window = 0, good_steps = 0;
};

// Checkpoint times, seconds: from the first byte to the marker, and for how long steps stood still.
struct SaveTimes {
  double total_s = 0, stall_s = 0;
};

// The outcome of a step.
struct StepOutcome {
  float loss = 0;          // nats per token: the mean over the labels of all micro-batches
  float grad_norm = 0;     // before clipping
  bool nonfinite = false;  // the update was skipped: weights and states are as before
  bool partial = false;    // but for those of the tensors that are not in `skipped_tensors`
  bool flagged = false;    // a quantizer met a value that is not finite
  // The step was skipped for the loss scale's sake, which fell: the loss is finite.
  bool overflowed = false;
  std::optional<LossScaleReport> loss_scale = {};
  // Without clipping: the parameters that were left as they were, the others being updated.
  std::vector<std::string> skipped_tensors = {};
  // With train.debug_nonfinite: the first value that was not finite, where the loss or a gradient
  // was not.
  std::optional<NonfiniteSite> site = {};
  // Ranks whose rows differ, and whose losses are the same to the bit; not in metrics.jsonl.
  bool equal_losses = false;
};

// The unit that steps and speeds count: a model that reads no tokens reads pictures, one a row.
inline constexpr std::string_view kTokens = "tokens", kPictures = "pictures";

struct StepReport : StepOutcome {
  int64_t step = 0, steps = 0;  // this one, and how many the run has
  double lr = 0;
  std::string_view unit = kTokens;
  int64_t tokens = 0;       // since the start of the run, of `unit`
  int64_t labels = -1;      // of this step; -1: an older line does not say
  double tokens_per_s = 0;  // of this step, without padding
  double time_ms = 0;       // of this step, without evaluation and saving
  // Since the last line that has them (train/step_energy.h).
  std::optional<double> joules = {};
  int64_t mem_bytes = 0;  // allocated by the plans
  bool skipped = false;   // the whole update, as a gradient was not finite; not `overflowed`
  std::optional<bool> clipped = {};         // |g| was above optim.clip; an older line does not say
  std::vector<EdgeStatistics> edges = {};   // of a step that telemetry samples
  std::vector<AuditDifference> audit = {};  // what an audit found
  std::optional<double> val_loss;
  // Other figures of the losses in the same evaluation, "accuracy" (val_NAME in metrics.jsonl).
  std::vector<std::pair<std::string, double>> val_figures = {};
  std::string val_amount = {};  // "42 of 120 samples", where an evaluation reads fewer than all
  std::optional<SaveTimes> save = {};  // of what was saved since the step before
  double seconds_left = 0;             // of the run, by the time that its steps have taken so far
  // Without labels the loss is 0, and is none.
  bool has_labels() const { return labels != 0; }
};

// One line of metrics.jsonl, without the line's end. Format: docs/formats/run.md.
std::string metrics_json(const StepReport& report);
// The report of such a line, the loss to the bit; nothing where it is none. An older line without
// "flagged" counts as not flagged.
std::optional<StepReport> parse_metrics(std::string_view line);

// Step and loss of a line as metrics_json writes it, found without parsing the rest; nothing where
// the line looks otherwise.
struct StepLoss {
  int64_t step = 0;
  float loss = 0;
  bool has_labels = true;
};
std::optional<StepLoss> quick_loss(std::string_view line);

// "step 12/1000  loss 3.2109  lr 2.4e-04  |g| 1.31  8.1k tokens/s  3:20 left"
std::string step_line(const StepReport& report);

// The same behind a bar, within `width` columns: what there is no room for goes, the gradient and
// the learning rate first, what is left of the run never.
std::string step_bar(const StepReport& report, std::string_view name, size_t width);

// The value for a reader: a NaN without its sign, which says nothing.
float unsigned_nan(float value);
double unsigned_nan(double value);

// "42 s", "3:20", "1:02:03"
std::string duration_text(double seconds);

}  // namespace octet
