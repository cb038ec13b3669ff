// Statistics of a run's losses and gradient norms: a running mean and deviation of the loss, steps
// whose loss jumps out of it, and summaries of intervals of steps.
//
// Steps without labels have no loss here.
// The running mean and variance weigh a step's finite loss x by a = max(2 / (window + 1), 1 / n):
//   d = x - mean,  mean += a d,  variance = (1 - a) (variance + a d^2)
// A step is a spike where x > mean + spike_deviations * max(deviation, |mean| / 1000) as they were
// before it, from the 20th finite loss on. All in double, so that replayed steps give the same.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "train/step_report.h"

namespace octet {

struct StatisticsOptions {
  int64_t interval = 50;        // steps of a summary; 0: none
  int64_t last_step = 0;        // of the run: the last summary may be of a shorter interval
  int64_t window = 100;         // of the running mean, steps
  double spike_deviations = 6;  // 0: no spikes
  double clip = 0;              // largest gradient norm of steps that do not say; 0: no clipping
};

struct LossSpike {
  double mean = 0, deviation = 0;  // of the losses before
  double n_deviations = 0;         // by which the loss stands above the mean
};

// Means, medians and deviations are NaN where no value of the interval was finite.
struct IntervalSummary {
  int64_t first_step = 0, last_step = 0;
  double loss_mean = 0, loss_deviation = 0;  // of the finite losses
  double running_mean = 0, running_deviation = 0;
  double grad_norm_median = 0, grad_norm_max = 0;  // of the finite norms
  double clip_share = 0;                           // of the steps, by each one's own bound
  int64_t n_spikes = 0, n_skipped = 0, n_flagged = 0, n_unlabelled = 0;
  std::string_view unit = kTokens;  // of the last step
  double tokens_per_s = 0;          // over the interval's time, without evaluation and saving
};

// The training loss of a run as its tables tell it: the mean of its last 20 finite losses of steps
// with labels, those before a resume included.
class LastLosses {
 public:
  void add(double loss) {
    if (!std::isfinite(loss)) return;
    losses_.push_back(loss);
    if (losses_.size() > kMax) losses_.pop_front();
  }
  std::optional<double> mean() const {  // nothing where there is none
    if (losses_.empty()) return std::nullopt;
    double sum = 0;
    for (const double loss : losses_) sum += loss;
    return sum / static_cast<double>(losses_.size());
  }

 private:
  static constexpr size_t kMax = 20;

  std::deque<double> losses_;
};

class RunStatistics {
 public:
  explicit RunStatistics(const StatisticsOptions& options) : options_(options) {}

  // A step of an interval that is over, when a run goes on: its loss counts, and nothing is told.
  void replay(const StepLoss& step);
  // Steps in order.
  std::optional<LossSpike> add(const StepReport& report);
  // The summary, where the last step added ended an interval.
  std::optional<IntervalSummary> summary() const { return summary_; }
  std::optional<double> train_loss() const { return last_losses_.mean(); }

 private:
  std::optional<LossSpike> judge(double loss) const;
  void update_running(double loss);
  IntervalSummary summarize() const;

  StatisticsOptions options_;
  int64_t n_finite_ = 0;
  double mean_ = 0, variance_ = 0;
  std::vector<StepReport> interval_;  // its steps so far
  int64_t n_spikes_ = 0;              // in it
  std::optional<IntervalSummary> summary_;
  LastLosses last_losses_;
};

// Lines of telemetry.jsonl, without their ends. Format: docs/formats/run.md.
std::string telemetry_json(const IntervalSummary& summary);
std::string telemetry_json(int64_t step, float loss, const LossSpike& spike);
std::string telemetry_json(int64_t step, const NonfiniteSite& site);

// "steps 51 to 100: loss 3.2109, deviation 0.0312; |g| median 1.31, largest 4.20, 12 % clipped;
// 0 spikes, 0 skipped; 8120 tokens/s"
std::string summary_line(const IntervalSummary& summary);

// The steps of this process.
class StepTally {
 public:
  void add(const StepReport& report) {
    seconds_ += report.time_ms / 1000;
    n_tokens_ += report.tokens_per_s * report.time_ms / 1000;
    ++n_steps_;
  }
  int64_t n_steps() const { return n_steps_; }
  double seconds() const { return seconds_; }    // of the steps alone
  double n_tokens() const { return n_tokens_; }  // without padding
  // Speed over all steps together, without padding; nothing where they took no time.
  std::optional<double> tokens_per_s() const {
    return seconds_ > 0 ? std::optional(n_tokens_ / seconds_) : std::nullopt;
  }

 private:
  double seconds_ = 0, n_tokens_ = 0;
  int64_t n_steps_ = 0;
};

}  // namespace octet
