// The record that a run writes of its steps: metrics.jsonl, telemetry.jsonl, samples.jsonl where
// there are any, TensorBoard's events, and the log lines about spikes, intervals and values that
// are not finite. Formats: docs/formats/run.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/log.h"
#include "config/run_config.h"
#include "train/event_file.h"
#include "train/json_lines_file.h"
#include "train/run_samples.h"
#include "train/run_statistics.h"

namespace octet {

class RunRecord {
 public:
  // In config.out, which is there. A run that goes on after `last_step` keeps the lines up to it,
  // and its statistics go on from them.
  RunRecord(Files& files, const RunConfig& config, int64_t last_step, const Log& log);

  // Throws where metrics.jsonl cannot be written. The others are extras: where one fails, a warning
  // says so, and nothing more is written to it. The bytes that were written.
  uint64_t add(const StepReport& report, const Log& log);
  // Into samples.jsonl; without it as with the other extras.
  void add(const std::vector<TextSample>& samples, const Log& log);
  // LastLosses::mean() of the run, the steps before this process included.
  std::optional<double> train_loss() const { return statistics_.train_loss(); }
  // Before a checkpoint: the lines of its steps must outlast a power failure as well.
  void sync(const Log& log);
  // False once metrics.jsonl was removed, moved or replaced: its lines are in nobody's sight.
  bool is_in_place() const { return metrics_.is_in_place(); }

 private:
  void replay(std::string_view line, int64_t last_step);
  void add_telemetry(const StepReport& report, const Log& log);
  void add_events(const StepReport& report);
  void write_telemetry(const std::string& line, const Log& log);

  int64_t interval_;  // of telemetry, in steps; 0: none
  bool is_clipped_ = true;
  uint64_t n_written_ = 0, n_sample_bytes_ = 0;
  int64_t n_replayed_ = 0;  // lines of steps before this process
  RunStatistics statistics_;
  JsonLinesFile metrics_;
  std::optional<JsonLinesFile> telemetry_, samples_;
  std::optional<EventFile> events_;
};

}  // namespace octet
