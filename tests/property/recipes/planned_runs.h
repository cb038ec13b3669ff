// Configurations whose training plans tests look at without running anything: every recipe, and the
// choices that change what a recipe's plan is made of.
#pragma once

#include <string>
#include <vector>

#include "config/load.h"
#include "infer/model_spec.h"
#include "nn/model.h"
#include "passes/precision/recipe.h"
#include "train/run_setup.h"

namespace octet {

struct PlannedRun {
  std::string name;  // recipe and choices
  ProgramOptions options;
  ModelSpec spec;
  std::vector<InputSpec> inputs;  // of model and losses
};

inline PlannedRun planned_run(const std::string& recipe, const std::string& model,
                              std::vector<std::string> sets) {
  std::string name = recipe;
  for (const std::string& set : sets) name += " " + set;
  const std::string text = fmt::format("model: {{{}}}\n", model);
  sets.push_back("recipe.base=" + recipe);
  const RunConfig config = parse_config(text, "plan.yaml", sets).config;
  const ModelSpec spec = model_from_config(posix_files(), config);
  const ProgramOptions options = program_options(config, spec);
  return {name, options, spec, batch_inputs(spec, options.train, run_losses(config, spec))};
}

}  // namespace octet
