#include "train/eval_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "infer/batch_inputs.h"
#include "infer/inference.h"
#include "infer/loaded_rms.h"
#include "runtime/edge_statistics.h"
#include "train/calibration.h"
#include "train/run_setup.h"

namespace octet {
namespace {

std::vector<std::string> texts_of(const std::vector<EdgeScale>& scales) {
  std::vector<std::string> texts;
  texts.reserve(scales.size());
  for (const EdgeScale& scale : scales)
    texts.push_back(fmt::format("{}={}", scale.pattern, scale.log2));
  return texts;
}

}  // namespace

RecipeOptions forward_options(const ModelSource& source, const std::string& recipe) {
  RecipeOptions result = source.recipe_options;
  if (!source.run || find_recipe(source.run->recipe.base).name != find_recipe(recipe).name)
    return result;
  const RecipeOptions of_run = recipe_options(*source.run);
  result.overrides = of_run.overrides;
  result.scaling = of_run.scaling;
  result.tf32 = of_run.tf32;
  result.compute = of_run.compute;
  result.activation_group = of_run.activation_group;
  result.saved_attention = of_run.saved_attention;
  result.scale_rounding = of_run.scale_rounding;
  result.block_scale = of_run.block_scale;
  result.mx_rule = of_run.mx_rule;
  result.accumulation = of_run.accumulation;
  result.activations = of_run.activations;
  result.quantizes_linear_outputs = of_run.quantizes_linear_outputs;
  return result;
}

void take_run_scales(const Files& files, ModelSource& source, const std::string& recipe,
                     const Log& log) {
  RecipeOptions& options = source.recipe_options;
  if (!source.run || !options.edge_scales.empty() || !predicts_scales(recipe)) return;
  const RecipeConfig& of_the_run = source.run->recipe;
  if (of_the_run.base != recipe || of_the_run.edge_scales.empty()) return;
  const std::string& began = source.run->model.path;
  if (of_the_run.weight_rms == WeightRms::loaded && !files.exists(began)) {
    log.warning("[scales] the run's calibration is not used: its model '{}' is not there", began);
    return;
  }
  const RecipeOptions of_run = loaded_options(files, *source.run, source.spec).recipe_options;
  options.initial_rms = of_run.initial_rms;
  options.edge_scales = of_run.edge_scales;
}

void measure_edge_scales(ModelSource& source, const Batch& rows, const TextMachine& machine) {
  const WeightReader weights(machine.files, source.weights, source.spec, source.nonfinite);
  const FunctionKey function{function::evaluate, {.batch = rows.batch, .seq = rows.seq}};
  RecipeOptions& options = source.recipe_options;
  Precision precision = precision_of(source, weights);
  options.initial_rms = precision.recipe_options.initial_rms;
  for (int trial = 0; trial < kMaxScaleTrials; ++trial) {
    precision.recipe_options.edge_scales = options.edge_scales;
    Inference model(source.spec, precision, std::span(&function, 1), machine.device,
                    machine.catalogue);
    model.load(weights);
    BoundPlan& evaluate = model.function(function.name, function.size);
    EdgeWatch watch(model.arenas(), EdgeLooks::scales);
    upload(
        evaluate, rows,
        {scalar_input("inv_n", 1.0f / static_cast<float>(std::max<int64_t>(1, rows.n_labels())))});
    evaluate.run(watch.observer());
    const auto alarms = alarms_of(watch.take(), nullptr, AlarmRule::before_first_step);
    if (alarms.empty()) return;
    const std::vector<std::string> scales = with_rescales(texts_of(options.edge_scales), alarms);
    options.edge_scales.clear();
    for (const std::string& text : scales)
      options.edge_scales.push_back(edge_scale_from_text(text).value());
  }
}

}  // namespace octet
