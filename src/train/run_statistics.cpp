#include "train/run_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/json.h"
#include "base/ordered_json.h"

namespace octet {
namespace {

constexpr int64_t kFewestLosses = 20;         // before a spike can be told from the beginning
constexpr double kMinDeviation = 1.0 / 1000;  // of the mean: a smooth loss has none

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Moments {
  double mean = kNan, deviation = kNan;
};

Moments moments(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  for (const double value : values) squares += (value - sum / n) * (value - sum / n);
  return {sum / n, std::sqrt(squares / n)};
}

double median(std::vector<double> values) {
  if (values.empty()) return kNan;
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

std::optional<LossSpike> RunStatistics::judge(double loss) const {
  if (options_.spike_deviations <= 0 || n_finite_ < kFewestLosses) return std::nullopt;
  const double deviation = std::max(std::sqrt(variance_), std::abs(mean_) * kMinDeviation);
  if (loss <= mean_ + options_.spike_deviations * deviation) return std::nullopt;
  return LossSpike{mean_, deviation, deviation > 0 ? (loss - mean_) / deviation : kNan};
}

void RunStatistics::update_running(double loss) {
  ++n_finite_;
  last_losses_.add(loss);
  const double weight = std::max(2.0 / static_cast<double>(options_.window + 1),
                                 1.0 / static_cast<double>(n_finite_));
  const double difference = loss - mean_;
  mean_ += weight * difference;
  variance_ = (1 - weight) * (variance_ + weight * difference * difference);
}

void RunStatistics::replay(const StepLoss& step) {
  if (step.has_labels && std::isfinite(step.loss)) update_running(static_cast<double>(step.loss));
}

std::optional<LossSpike> RunStatistics::add(const StepReport& report) {
  std::optional<LossSpike> spike;
  const auto loss = static_cast<double>(report.loss);
  if (report.has_labels() && std::isfinite(loss)) {
    spike = judge(loss);
    update_running(loss);
  }
  summary_.reset();
  if (options_.interval == 0) return spike;
  interval_.push_back(report);
  n_spikes_ += spike ? 1 : 0;
  if (report.step % options_.interval == 0 || report.step == options_.last_step) {
    summary_ = summarize();
    interval_.clear();
    n_spikes_ = 0;
  }
  return spike;
}

IntervalSummary RunStatistics::summarize() const {
  IntervalSummary result;
  result.first_step = interval_.front().step;
  result.last_step = interval_.back().step;
  std::vector<double> losses, norms;
  double n_tokens = 0, seconds = 0;
  int64_t n_clipped = 0;
  for (const StepReport& report : interval_) {
    const auto loss = static_cast<double>(report.loss),
               norm = static_cast<double>(report.grad_norm);
    if (report.has_labels() && std::isfinite(loss)) losses.push_back(loss);
    if (report.has_labels() && std::isfinite(norm)) norms.push_back(norm);
    result.n_unlabelled += report.has_labels() ? 0 : 1;
    n_clipped += report.clipped.value_or(options_.clip > 0 && norm > options_.clip) ? 1 : 0;
    result.n_skipped += report.skipped ? 1 : 0;
    result.n_flagged += report.flagged ? 1 : 0;
    seconds += report.time_ms / 1000;
    n_tokens += report.tokens_per_s * report.time_ms / 1000;
  }
  const Moments of_losses = moments(losses);
  result.loss_mean = of_losses.mean;
  result.loss_deviation = of_losses.deviation;
  result.running_mean = n_finite_ > 0 ? mean_ : kNan;
  result.running_deviation = n_finite_ > 0 ? std::sqrt(variance_) : kNan;
  result.grad_norm_median = median(norms);
  result.grad_norm_max = norms.empty() ? kNan : *std::ranges::max_element(norms);
  result.clip_share = static_cast<double>(n_clipped) / static_cast<double>(interval_.size());
  result.n_spikes = n_spikes_;
  result.unit = interval_.back().unit;
  result.tokens_per_s = seconds > 0 ? n_tokens / seconds : kNan;
  return result;
}

std::string telemetry_json(const IntervalSummary& summary) {
  OrderedJson json = {{"step", summary.last_step},
                      {"event", "interval"},
                      {"first_step", summary.first_step},
                      {"loss_mean", summary.loss_mean},
                      {"loss_deviation", summary.loss_deviation},
                      {"running_loss_mean", summary.running_mean},
                      {"running_loss_deviation", summary.running_deviation},
                      {"spikes", summary.n_spikes},
                      {"grad_norm_median", summary.grad_norm_median},
                      {"grad_norm_max", summary.grad_norm_max},
                      {"clip_share", summary.clip_share},
                      {"skipped", summary.n_skipped},
                      {"flagged", summary.n_flagged},
                      {"unlabelled", summary.n_unlabelled},
                      {"tokens_per_s", summary.tokens_per_s}};
  if (summary.unit != kTokens) json["unit"] = summary.unit;
  return json.dump();
}

std::string telemetry_json(int64_t step, float loss, const LossSpike& spike) {
  return OrderedJson{{"step", step},
                     {"event", "spike"},
                     {"loss", static_cast<double>(loss)},
                     {"running_loss_mean", spike.mean},
                     {"running_loss_deviation", spike.deviation},
                     {"deviations", spike.n_deviations}}
      .dump();
}

std::string telemetry_json(int64_t step, const NonfiniteSite& site) {
  return OrderedJson{{"step", step},
                     {"event", "nonfinite"},
                     {"cause", enum_name(site.cause)},
                     {"op", site.op},
                     {"layer", site.tag.layer},
                     {"role", enum_name(site.tag.role)},
                     {"origin", site.tag.origin},
                     {"tensor", site.tensor},
                     {"dtype", dtype_name(site.type.dtype)},
                     {"shape", site.type.shape},
                     {"nan", site.n_nan},
                     {"inf", site.n_inf},
                     {"first", site.first},
                     {"function", site.function},
                     {"launch", site.plan_step},
                     {"kernel", site.kernel}}
      .dump();
}

std::string summary_line(const IntervalSummary& summary) {
  std::string line = fmt::format(
      "steps {} to {}: loss {:.4f}, deviation {:.4f}; |g| median {:.2f}, largest {:.2f}, {:.0f} % "
      "clipped; {} spikes, {} skipped",
      summary.first_step, summary.last_step, unsigned_nan(summary.loss_mean),
      unsigned_nan(summary.loss_deviation), unsigned_nan(summary.grad_norm_median),
      unsigned_nan(summary.grad_norm_max), 100 * summary.clip_share, summary.n_spikes,
      summary.n_skipped);
  if (summary.n_flagged > 0) line += fmt::format(", {} flagged by quantizers", summary.n_flagged);
  if (summary.n_unlabelled > 0) line += fmt::format(", {} without labels", summary.n_unlabelled);
  return line + fmt::format("; {:.0f} {}/s", unsigned_nan(summary.tokens_per_s), summary.unit);
}

}  // namespace octet
