#include "train/loaded_options.h"

#include "infer/loaded_rms.h"
#include "infer/model_spec.h"
#include "infer/weights.h"
#include "io/model_files.h"

namespace octet {
namespace {

bool has_weights(const Files& files, const std::string& folder) {
  return has_model_files(files, folder) ||
         files.exists(join_path(folder, "adapter_model.safetensors"));
}

}  // namespace

ProgramOptions loaded_options(const Files& files, const RunConfig& config, const ModelSpec& spec,
                              int64_t rank) {
  ProgramOptions options = program_options(config, spec, rank);
  const bool is_loaded =
      config.recipe.weight_rms == WeightRms::loaded && predicts_scales(config.recipe.base);
  if (!is_loaded || !has_weights(files, config.model.path)) return options;
  const WeightReader weights(files, config.model.path, spec,
                             nonfinite_weights(config.model.allow_nonfinite), head_weights(config));
  for (const auto& [name, rms] : loaded_rms(weights, spec))
    options.recipe_options.initial_rms[name] = rms;
  return options;
}

}  // namespace octet
