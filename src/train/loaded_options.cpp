#include "train/loaded_options.h"

#include <algorithm>
#include <initializer_list>

#include "infer/loaded_rms.h"
#include "infer/weights.h"

namespace octet {
namespace {

bool has_weights(const Files& files, const std::string& folder) {
  return std::ranges::any_of(
      std::initializer_list<const char*>{"model.safetensors", "model.safetensors.index.json",
                                         "adapter_model.safetensors"},
      [&](const char* name) { return files.exists(join_path(folder, name)); });
}

}  // namespace

ProgramOptions loaded_options(const Files& files, const RunConfig& config, const ModelSpec& spec,
                              int64_t rank) {
  ProgramOptions options = program_options(config, spec, rank);
  const bool is_loaded =
      config.recipe.weight_rms == "loaded" && predicts_scales(config.recipe.base);
  if (!is_loaded || !has_weights(files, config.model.path)) return options;
  const WeightReader weights(files, config.model.path, spec,
                             nonfinite_weights(config.model.allow_nonfinite));
  for (const auto& [name, rms] : loaded_rms(weights, spec))
    options.recipe_options.initial_rms[name] = rms;
  return options;
}

}  // namespace octet
