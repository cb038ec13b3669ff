// octet train --profile-steps A:B.
#pragma once

#include <cstdint>
#include <string>

#include "cli/backend.h"
#include "runtime/profile.h"
#include "train/trainer.h"

namespace octet {

// Steps first to last, both included, counted from 1.
struct StepRange {
  int64_t first = 0, last = 0;
};

// "10:12"; throws Error{invalid_argument} for anything else.
StepRange parse_step_range(const std::string& text);

// Watches the steps of the range, and leaves the trainer alone in all others.
class StepProfiler {
 public:
  StepProfiler(const StepRange& range, TrainEngine& engine)
      : range_(range), engine_(engine), profile_(&engine.arenas().device()) {}

  void before_step(int64_t step);

  // Writes the trace. Nothing, with a warning, where no step of the range ran.
  void write(Files& files, const std::string& path, const Log& log) const;
  // By kernel, for one step (the mean), against ceilings that are measured now.
  Table table(Backend& backend) const;
  bool has_seen_steps() const { return !profile_.runs().empty(); }

 private:
  StepRange range_;
  TrainEngine& engine_;
  Profile profile_;
};

}  // namespace octet
