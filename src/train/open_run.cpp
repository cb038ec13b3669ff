#include "train/open_run.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "infer/model_spec.h"
#include "nn/shape.h"
#include "optim/beta_error.h"
#include "train/finetune.h"
#include "train/resume.h"
#include "train/run_length.h"

namespace octet {
namespace {

void tell_betas(const RunConfig& config, const Log& log) {
  for (const double beta : config.optim.betas) {
    if (beta_error(beta) > kMaxBetaError) log.warning("[optim.betas] {}", beta_warning(beta));
  }
}

// The positions that a model knows: its rotary ones may be stretched.
int64_t known_positions(const ModelSpec& spec) {
  const auto stretched = [&](int64_t positions) {
    return static_cast<int64_t>(static_cast<double>(positions) * spec.rope_factor);
  };
  switch (spec.rope_scaling) {
    case RopeScaling::none:
      return longest_row(spec);
    case RopeScaling::linear:
    case RopeScaling::dynamic:
      return std::max(spec.max_positions, stretched(spec.max_positions));
    default:
      return std::max(spec.max_positions, stretched(spec.rope_original_max_position));
  }
}

void check_positions(const RunConfig& config, const ModelSpec& spec, bool resumes, const Log& log) {
  if (config.model.path.empty() || config.model.seq <= known_positions(spec)) return;
  const std::string text =
      fmt::format("model.seq: expected at most the {} positions that {} knows, got {}",
                  known_positions(spec), config.model.path, config.model.seq);
  if (!resumes) throw Error(ErrorCode::invalid_argument, "{}", text);
  log.warning("{}", text);
}

// Of a single sample the loss is 0, whatever the model.
void expect_enough_samples(const RunConfig& config, const ModelSpec& spec) {
  for (const WeightedLoss& one : run_losses(config, spec)) {
    const LossDef& loss = *find_loss(one.name);
    const int64_t n_rows = loss.min_samples * loss.rows_per_sample;
    if (config.train.batch >= n_rows) continue;
    throw Error(ErrorCode::invalid_argument,
                "train.batch: expected at least {}, the rows of {} samples that {} tells from each "
                "other, got {}",
                n_rows, loss.min_samples, loss.name, config.train.batch);
  }
}

void expect_whole_samples(const RunConfig& config, const Dataset& data) {
  const int64_t n_rows = data.train_rows == nullptr ? 1 : data.train_rows->rows_per_sample();
  if (config.train.batch % n_rows == 0) return;
  throw Error(ErrorCode::invalid_argument,
              "train.batch: expected a multiple of {}, the rows of a sample, got {}", n_rows,
              config.train.batch);
}

}  // namespace

OpenRun open_run(Files& files, LoadedConfig loaded, const OpenRunOptions& options) {
  OpenRun run{.loaded = std::move(loaded), .data = {}, .spec = {}};
  const RunConfig& config = run.loaded.config;
  run.spec = model_from_config(files, config);
  if (!config.model.path.empty())
    tell_unknown_keys(files, config.model.path, options.data.log, options.unknown_keys);
  check_positions(config, run.spec, options.resumes, options.data.log);
  expect_enough_samples(config, run.spec);
  tell_betas(config, options.data.log);
  const bool is_first = options.processes == nullptr || options.processes->rank() == 0;
  std::byte is_ready{};
  if (!is_first) options.processes->broadcast(&is_ready, 1, 0);
  run.data = open_run_data(files, config, run.spec, options.data);
  if (is_first && options.processes != nullptr) options.processes->broadcast(&is_ready, 1, 0);
  options.fits_to_data ? fit_to_data(run.loaded, run.data) : settle_length(run.loaded, run.data);
  expect_whole_samples(config, run.data);
  run.spec = model_from_config(files, config);  // of the settled sequence
  return run;
}

void keep_what_resumes(Files& files, LoadedConfig& loaded, const Log& log) {
  keep_step_rows(files, loaded, log);
  keep_recorded(files, loaded);
}

}  // namespace octet
