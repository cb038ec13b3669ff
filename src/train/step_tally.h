// Means over the steps of this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "train/step_report.h"

namespace octet {

class StepTally {
 public:
  void add(const StepReport& report) {
    if (report.has_labels()) losses_.push_back(static_cast<double>(report.loss));
    if (losses_.size() > kLossWindow) losses_.pop_front();
    seconds_ += report.time_ms / 1000;
    ++n_steps_;
  }
  int64_t n_steps() const { return n_steps_; }
  double seconds() const { return seconds_; }  // of the steps alone
  // Over the last ones that had labels, at most 20; nothing where none had.
  std::optional<double> mean_loss() const {
    if (losses_.empty()) return std::nullopt;
    double sum = 0;
    for (const double loss : losses_) sum += loss;
    return sum / static_cast<double>(losses_.size());
  }

 private:
  static constexpr size_t kLossWindow = 20;

  std::deque<double> losses_;
  double seconds_ = 0;
  int64_t n_steps_ = 0;
};

}  // namespace octet
