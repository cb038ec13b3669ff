// Energy that the steps of a run cost, where the machine counts it.
#pragma once

#include <optional>
#include <string>

#include "device/energy.h"
#include "train/stopwatch.h"

namespace octet {

class StepEnergy {
 public:
  explicit StepEnergy(Energy of, const std::string& powercap = kPowercap)
      : counter_(of, powercap) {}

  // Joules since the last ones, evaluation and saving included. Nothing within a second of them,
  // since counters move ten times a second or so, but behind the last step; nor where
  // EnergyCounter::take has nothing.
  std::optional<double> take(bool is_last) {
    if (!is_last && watch_.seconds() < 1) return std::nullopt;
    watch_ = {};
    return counter_.take();
  }

 private:
  EnergyCounter counter_;
  Stopwatch watch_;
};

}  // namespace octet
