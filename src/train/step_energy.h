// What the steps of a run cost in energy, where the machine counts it.
#pragma once

#include <optional>
#include <string>

#include "device/energy.h"
#include "train/stopwatch.h"

namespace octet {

class StepEnergy {
 public:
  explicit StepEnergy(Energy of, const std::string& powercap = kPowercap)
      : counter_(of, powercap), last_(counter_.joules()) {}

  // Joules since the last ones, evaluation and saving included. Nothing within a second of them,
  // since counters move ten times a second or so, but behind the last step; nor where nobody counts
  // or the counter began anew.
  std::optional<double> take(bool is_last) {
    if (!last_ || (!is_last && watch_.seconds() < 1)) return std::nullopt;
    const std::optional<double> before = last_;
    last_ = counter_.joules();
    watch_ = {};
    if (!last_ || *last_ < *before) return std::nullopt;
    return *last_ - *before;
  }

 private:
  EnergyCounter counter_;
  std::optional<double> last_;
  Stopwatch watch_;
};

}  // namespace octet
