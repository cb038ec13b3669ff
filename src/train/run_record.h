// What a run writes down of its steps: metrics.jsonl, telemetry.jsonl, TensorBoard's events, and
// the log lines about spikes, intervals and values that are not finite. Formats:
// docs/formats/run.md.
#pragma once

#include <memory>
#include <optional>

#include "base/log.h"
#include "config/run_config.h"
#include "train/event_file.h"
#include "train/json_lines_file.h"
#include "train/run_statistics.h"

namespace octet {

class RunRecord {
 public:
  // In config.out, which is there. A run that goes on after `last_step` keeps the lines up to it,
  // and its statistics go on from them.
  RunRecord(Files& files, const RunConfig& config, int64_t last_step);

  void add(const StepReport& report, const Log& log);
  // Before a checkpoint: the lines of its steps must outlast a power failure as well.
  void sync();

 private:
  void add_telemetry(const StepReport& report, const Log& log);
  void add_events(const StepReport& report);

  JsonLinesFile metrics_, telemetry_;
  std::optional<EventFile> events_;
  RunStatistics statistics_;
};

}  // namespace octet
