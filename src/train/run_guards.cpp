#include "train/run_guards.h"

#include <cmath>

#include "base/error.h"
#include "base/parse_text.h"

namespace octet {
namespace {

constexpr const char* kNonfinite = "nonfinite_in_a_row";
constexpr const char* kNoGradient = "zero_gradients_in_a_row";
constexpr const char* kInARow = "unlabelled_in_a_row";
constexpr const char* kUnlabelled = "unlabelled";

bool is_finite_step(const StepReport& report) {
  return !report.skipped && report.skipped_tensors.empty() && std::isfinite(report.loss);
}

// What looks as if nothing had been learnt; "" where nothing does.
std::string no_gradient_text(const StepReport& report) {
  if (!report.has_labels()) return "";
  if (report.grad_norm == 0) return "the gradient is 0 though the step has labels";
  if (report.equal_losses)
    return fmt::format("all ranks have the same loss, {:.9g} in all, though their rows differ",
                       report.loss);
  return "";
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

}  // namespace

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
