// The interface of a run: what it is made with, and what it says of itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "comm/group.h"
#include "config/load.h"
#include "device/device.h"
#include "plan/backend.h"
#include "train/run_folder.h"
#include "train/step_report.h"

namespace octet {

class Trainer;
struct TrainResult;

// The machine that a trainer works with; all must outlive it.
struct TrainerMachine {
  Files& files;
  Device& device;
  Catalogue& catalogue;
  std::string isa = {};  // that the CPU's kernels use, "avx512"; recorded in checkpoints
  // The group of config.parallel.ranks ranks, each with a trainer that makes the same calls; rank 0
  // alone writes files, but for its part of the checkpoints. nullptr where this is the only one.
  Group* group = nullptr;
  // True if batches are read in a thread ahead of the step (data/row_reader.h). Nothing: where the
  // device computes beside the host, whose threads have time for it then.
  std::optional<bool> reads_ahead = {};
  // A CPU with the sums of the device's tensor cores, for train.audit (audit_backend() of
  // library/open_backend.h); it outlives the run. nullptr: there is no rule for them.
  const Backend* auditor = nullptr;
  int rank() const { return group == nullptr ? 0 : group->rank(); }
};

// A mode alone is a start that names no keys.
struct RunStart {
  RunStart(StartMode start_mode) : mode(start_mode) {}
  RunStart(StartMode start_mode, ConfigSources config_sources)
      : mode(start_mode), sources(std::move(config_sources)) {}
  StartMode mode;
  // LoadedConfig::source: keys from "--set" may change what a checkpoint records where the table
  // says so.
  ConfigSources sources = {};
};

struct TrainHooks {
  // Events of a Run (train/run.h): a trainer is made and has not begun; it has come to its end and
  // is there yet.
  std::function<void(Trainer&)> on_trainer = {};
  std::function<void(const TrainResult&)> on_end = {};
  // Before each step, with its number.
  std::function<void(int64_t step)> before_step = {};
  // After each step. Without it, one line every log_every steps goes to `log`.
  std::function<void(const StepReport&)> on_step = {};
  // A signal's number asks to save and stop after the step in progress.
  const std::atomic<int>* stop = nullptr;
  Log log = {};
  // The command that runs it, for the first line of config.yaml.
  std::string_view maker = "train";
};

struct TrainResult {
  int64_t step = 0;  // the last one done
  // The mean of the run's last 20 finite losses (train/run_statistics.h: LastLosses), as
  // metrics.jsonl has them; nothing where that has none.
  std::optional<double> train_loss;
  bool was_finished = false;        // the run had come to its end before this process
  std::optional<double> val_loss;   // of the last evaluation
  int64_t best_step = 0;            // of the lowest validation loss; 0: there was none
  double best_val_loss = 0;         // there
  std::string val_amount = {};      // "all 120 samples", "42 of 120 samples": what those are of
  std::string_view unit = kTokens;  // of what there are so many a second
  double tokens_per_s = 0;          // over the steps of this process, without padding
  int64_t planned_bytes = 0, peak_bytes = 0, state_bytes = 0;
  int signal = 0;  // that stopped the run, or 0
  // The recipe.edge_scales that the run stopped to go on with (train/calibration.h), which its
  // newest checkpoint records: another trainer resumes (train/run.h).
  std::optional<std::vector<std::string>> edge_scales = {};
};

}  // namespace octet
