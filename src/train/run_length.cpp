#include "train/run_length.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/integer.h"
#include "optim/schedule.h"
#include "train/row_data.h"
#include "train/run_setup.h"

namespace octet {
namespace {

// The sum over whole epochs, and over a share of the last one, rounded up.
int64_t sum_of_epochs(double epochs, const std::function<int64_t(int64_t epoch)>& n_of) {
  const auto n_whole = static_cast<int64_t>(epochs);
  const auto share = epochs - static_cast<double>(n_whole);
  int64_t sum = 0;
  for (int64_t epoch = 0; epoch < n_whole; ++epoch) sum += n_of(epoch);
  if (share == 0) return sum;
  return sum + static_cast<int64_t>(std::ceil(share * static_cast<double>(n_of(n_whole)) - 1e-9));
}

void settle_steps(LoadedConfig& loaded, const Dataset& data) {
  TrainConfig& train = loaded.config.train;
  if (is_set(loaded.source, "train.steps")) {
    if (is_set(loaded.source, "train.epochs")) {
      throw Error(ErrorCode::invalid_argument,
                  "--set: train.steps: expected no number of steps beside train.epochs, got {}",
                  train.steps);
    }
    train.epochs = 0;
    loaded.source["train.epochs"] = "--set";
    return;
  }
  const auto loader = make_loader(data, loaded.config);
  const int64_t steps = steps_of_epochs(loader, train.epochs, loaded.config.step_rows());
  if (steps > std::numeric_limits<int32_t>::max()) {
    throw Error(ErrorCode::invalid_argument,
                "train.epochs: expected at most {} steps, got {} epochs of {} steps",
                std::numeric_limits<int32_t>::max(), train.epochs, steps);
  }
  train.steps = std::max<int64_t>(steps, 1);
  loaded.source["train.steps"] = loaded.source.at("train.epochs");
}

// A number of steps on the command line stands in for a share that a file or a default says.
void take_set_warmup(LoadedConfig& loaded) {
  OptimConfig& optim = loaded.config.optim;
  if (is_set(loaded.source, "optim.warmup_share")) {
    throw Error(ErrorCode::invalid_argument,
                "--set: optim.warmup: expected no number of steps beside optim.warmup_share, got "
                "{}",
                optim.warmup);
  }
  optim.warmup_share = 0;
  loaded.source["optim.warmup_share"] = "--set";
}

// A number of steps, where the same file has the share that it is made of.
struct WrittenSteps {
  const char *key, *share;
  int64_t steps = 0;
  std::string where = {};  // "" where there is none
};

WrittenSteps written_steps(const LoadedConfig& loaded, const char* key, const char* share,
                           int64_t steps, double shared) {
  const auto is_of_file = [&](const char* one) {
    return is_written(loaded.source, one) && !is_set(loaded.source, one);
  };
  WrittenSteps written{.key = key, .share = share, .steps = steps};
  if (shared > 0 && is_of_file(key) && is_of_file(share)) written.where = loaded.source.at(key);
  return written;
}

void tell_replaced(const WrittenSteps& written, int64_t settled, const Log& log) {
  if (written.where.empty() || written.steps == settled) return;
  log.warning("{}: {} = {} has no effect beside {}", written.where, written.key, written.steps,
              written.share);
}

// Who sets no epochs means none, and not the steps that a run has by default.
void expect_told_length(const LoadedConfig& loaded) {
  const bool is_told = loaded.config.train.epochs > 0 || is_written(loaded.source, "train.steps");
  if (is_told || !is_written(loaded.source, "train.epochs")) return;
  throw Error(ErrorCode::invalid_argument,
              "train.epochs: expected a number above 0, or train.steps beside it, got 0 ({})",
              loaded.source.at("train.epochs"));
}

// Shares of a short run that are less than a step.
void tell_lost_shares(const LoadedConfig& loaded, const Log& log) {
  const OptimConfig& optim = loaded.config.optim;
  const auto steps = static_cast<double>(loaded.config.train.steps);
  if (optim.warmup == 0 && optim.warmup_share > 0) {
    log.warning("optim.warmup_share: {:g} of {:g} steps is less than half a step: no warm-up",
                optim.warmup_share, steps);
  } else if (optim.warmup == 0 && loaded.source.at("optim.warmup") == "derived") {
    log.info(
        "optim.warmup: it is longer than the {:g} steps, and a tenth of them is less than a "
        "step: no warm-up",
        steps);
  }
  if (optim.schedule == ScheduleKind::wsd && optim.decay_share > 0 &&
      optim.decay_share * steps < 1) {
    log.warning("optim.decay_share: {:g} of {:g} steps is less than a step: next to no decay",
                optim.decay_share, steps);
  }
}

}  // namespace

int64_t rows_of_epochs(const RowLoader& loader, double epochs) {
  return sum_of_epochs(epochs, [&](int64_t epoch) { return loader.rows_of_epoch(epoch); });
}

int64_t steps_of_epochs(const RowLoader& loader, double epochs, int64_t step_rows) {
  const RowPlan& plan = loader.plan();
  if (plan.sizes().empty()) return ceil_div(rows_of_epochs(loader, epochs), step_rows);
  return sum_of_epochs(epochs, [&](int64_t epoch) { return plan.steps_of_epoch(epoch); });
}

void settle_length(LoadedConfig& loaded, const Dataset& data, const Log& log) {
  RunConfig& config = loaded.config;
  expect_told_length(loaded);
  const WrittenSteps written =
      written_steps(loaded, "train.steps", "train.epochs", config.train.steps, config.train.epochs);
  const WrittenSteps warmup = written_steps(loaded, "optim.warmup", "optim.warmup_share",
                                            config.optim.warmup, config.optim.warmup_share);
  if (config.train.epochs > 0) settle_steps(loaded, data);
  if (config.optim.warmup_share > 0 && is_set(loaded.source, "optim.warmup"))
    take_set_warmup(loaded);
  const int64_t steps = config.train.steps;
  if (config.optim.warmup_share > 0) {
    config.optim.warmup = std::llround(config.optim.warmup_share * static_cast<double>(steps));
    loaded.source["optim.warmup"] = "derived";  // a longer run keeps that of its checkpoint
  } else if (config.optim.warmup > steps) {
    const std::string& source = loaded.source.at("optim.warmup");
    const bool is_of_other_length =
        is_set(loaded.source, "train.steps") && !is_set(loaded.source, "optim.warmup");
    if (is_written(loaded.source, "optim.warmup") && !is_of_other_length) {
      throw Error(ErrorCode::invalid_argument,
                  "{}: optim.warmup: expected at most train.steps = {}, got {}", source, steps,
                  config.optim.warmup);
    }
    config.optim.warmup = fitted_warmup(config.optim.warmup, steps);
    loaded.source["optim.warmup"] = "derived";
  }
  tell_replaced(written, config.train.steps, log);
  tell_replaced(warmup, config.optim.warmup, log);
  tell_lost_shares(loaded, log);
}

}  // namespace octet
