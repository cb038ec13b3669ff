#include "train/run_guards.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parse_text.h"

namespace octet {
namespace {

// Lengths that a gradient's is nothing beside: optim.eps, of which it is a share too small, and
// what Muon adds to it.
constexpr double kLeastGradient = 1e-11, kShareOfEps = 1e-3;
// A step at the peak of the rate that moves all weights by less is none: AdamW's are as large as
// it.
constexpr double kLeastMovement = 1e-9;
constexpr int64_t kWatchedSteps = 3;

constexpr const char* kNonfinite = "nonfinite_in_a_row";
constexpr const char* kNoGradient = "zero_gradients_in_a_row";
constexpr const char* kInARow = "unlabelled_in_a_row";
constexpr const char* kUnlabelled = "unlabelled";

bool is_finite_step(const StepReport& report) {
  return !report.skipped && report.skipped_tensors.empty() && std::isfinite(report.loss);
}

int64_t count_of(const KeyValues& extra, const char* key, int64_t most, const std::string& where) {
  const auto entry = extra.find(key);
  if (entry == extra.end()) return 0;
  const auto value = parse_number<int64_t>(entry->second);
  if (value && *value >= 0 && *value <= most) return *value;
  throw Error(ErrorCode::bad_data,
              "[resume] {}/manifest.json: '{}' must be at most the step, {}, "
              "got '{}'",
              where, key, most, entry->second);
}

// LAMB's steps are as long as the weight, however short the gradient is.
double least_gradient(const OptimConfig& optim) {
  const auto is_lamb = [](const OptimRuleLine& line) { return line.kind == UpdateKind::lamb; };
  if (optim.kind == UpdateKind::lamb || std::ranges::any_of(optim.rules, is_lamb)) return 0;
  return std::min(kLeastGradient, kShareOfEps * optim.eps);
}

// True if it is the loss of a model that has not left its reference, which all pairs of answers
// have (nn/losses/preference.cpp).
bool is_of_reference(const TrainConfig& config, double loss) {
  const double of_ipo = 1 / (2 * config.pairwise_beta);
  double expected = 0;
  for (const WeightedLoss& one : config.loss) {
    if (one.name == "dpo") expected += one.weight * std::log(2.0);
    if (one.name == "ipo") expected += one.weight * of_ipo * of_ipo;
  }
  return expected > 0 && std::abs(loss - expected) < 1e-6 * expected;
}

}  // namespace

RunGuards::RunGuards(const TrainConfig& config, const OptimConfig& optim)
    : config_(config),
      peak_lr_(optim.lr),
      clip_(optim.clip),
      least_gradient_(least_gradient(optim)) {}

// Signs that look as if nothing had been learnt; "" where there are none.
std::string RunGuards::no_gradient_text(const StepReport& report) const {
  if (!report.has_labels()) return "";
  if (report.grad_norm == 0) return "the gradient is 0 though the step has labels";
  if (report.equal_losses && !is_of_reference(config_, static_cast<double>(report.loss)))
    return fmt::format("all ranks have the same loss, {:.9g} in all, though their rows differ",
                       report.loss);
  const auto norm = static_cast<double>(report.grad_norm);
  const bool is_clipped = clip_ > 0 && clip_ < norm;
  if (!((is_clipped ? clip_ : norm) < least_gradient_)) return "";
  return is_clipped
             ? fmt::format("optim.clip makes the gradient {:g} long, which moves no weight", clip_)
             : fmt::format("the gradient is {:g} long, which moves no weight", norm);
}

void RunGuards::check(const StepReport& report, bool is_last, const Log& log) {
  check_finite(report);
  check_labels(report, is_last);
  check_gradient(report, log);
}

void RunGuards::check_finite(const StepReport& report) {
  n_nonfinite_ = is_finite_step(report) ? 0 : n_nonfinite_ + 1;
  if (n_nonfinite_ < config_.max_nonfinite_steps) return;
  throw Error(ErrorCode::numerics,
              "[train] expected a finite loss and gradient, got loss {} and gradient norm {} at "
              "step {}, the last of {} such steps (train.max_nonfinite_steps)",
              unsigned_nan(report.loss), unsigned_nan(report.grad_norm), report.step, n_nonfinite_);
}

void RunGuards::check_gradient(const StepReport& report, const Log& log) {
  const std::string what = no_gradient_text(report);
  // A step without labels says nothing of the model.
  if (report.has_labels()) n_no_gradient_ = what.empty() ? 0 : n_no_gradient_ + 1;
  if (what.empty()) return;
  const int64_t most = config_.max_zero_gradients;
  if (n_no_gradient_ == 1 || most > 0) log.warning("step {}: {}", report.step, what);
  if (most == 0 || n_no_gradient_ < most) return;
  throw Error(ErrorCode::numerics,
              "[train] expected a step that learns, got one in which {} at step {}, the last of {} "
              "such steps (train.max_zero_gradients)",
              what, report.step, n_no_gradient_);
}

bool RunGuards::ends_first_steps(const StepReport& report) {
  const int64_t n = config_.max_zero_gradients > 0 ? config_.max_zero_gradients : kWatchedSteps;
  const bool is_step = is_finite_step(report) && !report.overflowed && report.has_labels() &&
                       no_gradient_text(report).empty();
  if (!is_step || n_first_steps_ == n) return false;
  first_lr_ += report.lr;
  return ++n_first_steps_ == n;
}

// Rates that still rise are taken for the one that they come to.
void RunGuards::check_movement(double moved, const StepReport& report, const Log& log) const {
  if (!(moved * peak_lr_ / first_lr_ < kLeastMovement)) return;
  const std::string what =
      fmt::format("no weight has moved by more than {:.1g} in {} steps (optim.lr, optim.rules)",
                  moved, n_first_steps_);
  log.warning("step {}: {}", report.step, what);
  if (config_.max_zero_gradients == 0) return;
  throw Error(ErrorCode::numerics,
              "[train] expected steps that learn, got a step {} after which {} "
              "(train.max_zero_gradients)",
              report.step, what);
}

void RunGuards::check_labels(const StepReport& report, bool is_last) {
  const bool is_unlabelled = !report.has_labels();
  n_unlabelled_ += is_unlabelled ? 1 : 0;
  n_unlabelled_in_a_row_ = is_unlabelled ? n_unlabelled_in_a_row_ + 1 : 0;
  const bool has_none = is_last && n_unlabelled_ == report.step;
  if (n_unlabelled_in_a_row_ < kMaxUnlabelled && !has_none) return;
  throw Error(ErrorCode::bad_data,
              "[data] expected labels to train on, got none in {} steps in a row, the last of them "
              "step {}: every label is masked (data.document_boundaries; `octet data inspect` "
              "counts them)",
              n_unlabelled_in_a_row_, report.step);
}

void RunGuards::write(KeyValues& extra) const {
  extra[kNonfinite] = std::to_string(n_nonfinite_);
  extra[kNoGradient] = std::to_string(n_no_gradient_);
  extra[kInARow] = std::to_string(n_unlabelled_in_a_row_);
  extra[kUnlabelled] = std::to_string(n_unlabelled_);
}

void RunGuards::read(const KeyValues& extra, int64_t n_steps, const std::string& where) {
  const auto count = [&](const char* key) { return count_of(extra, key, n_steps, where); };
  n_nonfinite_ = count(kNonfinite);
  n_no_gradient_ = count(kNoGradient);
  n_unlabelled_in_a_row_ = count(kInARow);
  n_unlabelled_ = count(kUnlabelled);
}

std::optional<std::string> bad_end(const StepReport& last) {
  const bool has_evaluation = last.val_loss.has_value();
  const bool is_evaluated = has_evaluation && std::isfinite(*last.val_loss);
  const bool is_good = std::isfinite(last.loss) && is_evaluated == has_evaluation &&
                       (is_finite_step(last) || is_evaluated);
  if (is_good) return std::nullopt;
  std::string text = fmt::format(
      "loss {:.4f}{} at step {}", unsigned_nan(last.loss),
      is_finite_step(last) || !std::isfinite(last.loss) ? "" : " and a gradient that is not finite",
      last.step);
  if (has_evaluation)
    text += fmt::format(" and validation loss {:.4f}", unsigned_nan(*last.val_loss));
  return text;
}

}  // namespace octet
