#include "train/open_run.h"

#include <utility>

#include "infer/model_spec.h"
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

}  // namespace

OpenRun open_run(Files& files, LoadedConfig loaded, const OpenRunOptions& options) {
  OpenRun run{.loaded = std::move(loaded), .data = {}, .spec = {}};
  const RunConfig& config = run.loaded.config;
  run.spec = model_from_config(files, config);
  if (!config.model.path.empty())
    tell_unknown_keys(files, config.model.path, options.data.log, options.unknown_keys);
  tell_betas(config, options.data.log);
  const bool is_first = options.processes == nullptr || options.processes->rank() == 0;
  std::byte is_ready{};
  if (!is_first) options.processes->broadcast(&is_ready, 1, 0);
  run.data = open_run_data(files, config, run.spec, options.data);
  if (is_first && options.processes != nullptr) options.processes->broadcast(&is_ready, 1, 0);
  options.fits_to_data ? fit_to_data(run.loaded, run.data) : settle_length(run.loaded, run.data);
  run.spec = model_from_config(files, config);  // of the settled sequence
  return run;
}

void keep_what_resumes(Files& files, LoadedConfig& loaded, const Log& log) {
  keep_step_rows(files, loaded, log);
  keep_schedule_version(files, loaded);
  keep_edge_scales(files, loaded);
  keep_calibration(files, loaded);
  keep_former_defaults(files, loaded);
}

}  // namespace octet
