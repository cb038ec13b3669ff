// RUN/metrics.jsonl: one line a step, each written when its step is done.
#pragma once

#include <memory>
#include <string>

#include "base/files.h"
#include "train/step_report.h"

namespace octet {

class MetricsFile {
 public:
  // Keeps the lines of steps up to `last_step` (0: none) of the file that is there, so that a
  // resumed run's file reads as if nothing had happened. The kept lines take the old file's place
  // in one act: they are never lost.
  MetricsFile(Files& files, const std::string& path, int64_t last_step);

  void append(const StepReport& report);

 private:
  std::unique_ptr<FileWriter> file_;
};

}  // namespace octet
