// The record that a run leaves of itself in a checkpoint's manifest, and what must agree with it
// before another process goes on from there.
#pragma once

#include <optional>
#include <string>

#include "base/files.h"
#include "base/log.h"
#include "config/load.h"
#include "config/run_config.h"
#include "data/row_plan.h"
#include "io/checkpoint.h"
#include "nn/model.h"
#include "train/step_report.h"

namespace octet {

// The configuration with the model's shape spelled out, also where model.path gave it.
RunConfig with_shape(RunConfig config, const ModelSpec& spec);

// A run's configuration on resume.
struct ResumedConfig {
  RunConfig config;         // with its shape
  bool is_changed = false;  // against the run's config.yaml and the checkpoint
  std::string warning;      // where the learning rate jumps; empty: nowhere
};

// Compares `now`, with its shape, with what the checkpoint records (before version 1.1: with
// config.yaml of the run's folder), tells every change, and gives the configuration to go on with:
// `now`, but for a warm-up that nobody wrote, which stays as it was. `sources` is
// LoadedConfig::source. Throws Error{invalid_argument} for a change that the table forbids.
ResumedConfig resumed_config(const Files& files, const LoadedCheckpoint& checkpoint,
                             const RunConfig& now, const ConfigSources& sources, const Log& log);

// Throws Error{bad_data} for counters that no run can have; the loader is at the checkpoint's
// place.
void check_counters(const LoadedCheckpoint& checkpoint, const RowLoader& loader,
                    const RunConfig& config);

// A count in the manifest's `extra`.
int64_t extra_count(const LoadedCheckpoint& checkpoint, const std::string& key);

// The step whose line could not be written before the run ended: `unrecorded` in `extra`.
std::optional<StepReport> left_over_step(const LoadedCheckpoint& checkpoint);

// True if the run's newest checkpoint is one that this configuration does not go on from, by its
// manifest alone: of the last step, or where train.patience ended the run.
bool is_at_end(Files& files, const RunConfig& config);

// The last line of the run's metrics.jsonl, where it is of this step, and LastLosses::mean() of the
// lines to there.
struct RecordedStep {
  StepReport report;
  std::optional<double> train_loss;
};
std::optional<RecordedStep> recorded_step(const Files& files, const std::string& run, int64_t step);

// Warns where another device or instruction set computed the checkpoint's steps.
void compare_machines(const Manifest& manifest, const KeyValues& now, const Log& log);

// On another number of ranks than the run's newest checkpoint was made by, where the configuration
// names no train.accumulate for it: sets that key so that a step has as many rows as before. Throws
// Error{invalid_argument} where no number does.
void keep_step_rows(Files& files, LoadedConfig& loaded, const Log& log);

// Takes what a run keeps (its former defaults, schedule, scales) from its newest checkpoint, unless
// the command line names the key, or for some the configuration; what is not recorded is as it was
// before there was the key.
void keep_recorded(Files& files, LoadedConfig& loaded);

// The instruction set that the run's newest checkpoint records; "" where there is none.
std::string recorded_isa(Files& files, const std::string& run);

}  // namespace octet
