#include "bench/recipe_rounds.h"

#include <algorithm>

#include "base/error.h"
#include "compile/budget.h"
#include "infer/model_spec.h"
#include "train/run_setup.h"

namespace octet {
namespace {

constexpr int kWarmUpSteps = 2;

std::unique_ptr<StepRunner> warm_runner(const BenchMachine& machine, const RecipeRounds& rounds,
                                        const std::string& recipe) {
  machine.log.info("bench: recipe {}", recipe);
  auto runner = std::make_unique<StepRunner>(rounds.config(recipe), rounds.documents, machine);
  for (int i = 0; i < kWarmUpSteps; ++i) runner->step_ms();
  return runner;
}

int64_t planned_bytes(const BenchMachine& machine, const RunConfig& config) {
  const ProgramOptions options = program_options(config, model_from_config(posix_files(), config));
  return fit_to_budget(options, *machine.backend.catalogue)->planned_bytes();
}

// Empty, or why this machine cannot run the recipe in reasonable time.
std::string why_left_out(const BenchMachine& machine, const RunConfig& config) {
  try {
    const ModelSpec spec = model_from_config(posix_files(), config);
    Program program(program_options(config, spec), *machine.backend.catalogue);
    for (const std::string_view name : program.train_functions()) {
      const Plan& plan = program.plan(name);
      for (const PlanStep& step : plan.steps) {
        const OpCode op = plan.graph.nodes[static_cast<size_t>(step.node)].op;
        if (op == OpCode::gemm && step.kernel.reference)
          return "its products would run in the reference kernel " + step.kernel.name;
      }
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::device) throw;
    return error.what();
  }
  return {};
}

// Recipes of the rounds that this machine can run.
std::vector<std::string> recipes_to_run(const BenchMachine& machine, const RecipeRounds& rounds) {
  if (rounds.refusal == Refusal::fails) return rounds.recipes;
  std::vector<std::string> recipes;
  for (const std::string& recipe : rounds.recipes) {
    const std::string reason =
        recipe == kBaselineRecipe ? std::string() : why_left_out(machine, rounds.config(recipe));
    if (reason.empty())
      recipes.push_back(recipe);
    else
      machine.log.warning("bench: recipe {} left out: {}", recipe, reason);
  }
  return recipes;
}

// True if a GPU holds a run of each recipe beside one of the baseline. Half a GiB is left to the
// libraries' own.
bool holds_two(const BenchMachine& machine, const RecipeRounds& rounds,
               const std::vector<std::string>& recipes) {
  constexpr int64_t kLibraryBytes = int64_t{1} << 29;
  int64_t largest = 0;
  for (const std::string& recipe : recipes) {
    if (recipe != kBaselineRecipe)
      largest = std::max(largest, planned_bytes(machine, rounds.config(recipe)));
  }
  const int64_t baseline = planned_bytes(machine, rounds.config(kBaselineRecipe));
  return baseline + largest + kLibraryBytes <= machine.backend.device->info().memory_bytes;
}

}  // namespace

void for_recipes(const BenchMachine& machine, const RecipeRounds& rounds,
                 const std::function<void(const RecipePair&)>& measure) {
  const std::vector<std::string> recipes = recipes_to_run(machine, rounds);
  const bool has_one = recipes.size() == 1;
  const bool are_alone = machine.is_gpu() && (has_one || !holds_two(machine, rounds, recipes));
  if (are_alone && !has_one) {
    machine.log.info("bench: each recipe alone, as {} does not hold two",
                     machine.backend.device->info().name);
  }
  const auto baseline = are_alone ? nullptr : warm_runner(machine, rounds, kBaselineRecipe);
  for (const std::string& recipe : recipes) {
    if (baseline && recipe == kBaselineRecipe) {
      measure({recipe, *baseline, *baseline});
      continue;
    }
    const auto runner = warm_runner(machine, rounds, recipe);
    measure({recipe, *runner, baseline ? *baseline : *runner});
  }
}

RoundTimes alternate(const RecipePair& pair, int rounds,
                     const std::function<double(StepRunner&)>& step) {
  std::vector<double> times, baseline_times;
  for (int i = 0; i < rounds; ++i) {
    times.push_back(step(pair.runner));
    if (&pair.runner != &pair.baseline) baseline_times.push_back(step(pair.baseline));
  }
  const double ms = median(times);
  if (baseline_times.empty()) return {.ms = ms, .baseline_ms = ms, .baseline = pair.recipe};
  return {.ms = ms, .baseline_ms = median(baseline_times), .baseline = kBaselineRecipe};
}

void set_time(BenchRow& row, double ms, double floor_ms) {
  row.value = ms;
  row.unit = "ms";
  row.floor = floor_ms;
  row.share = ms > 0 ? floor_ms / ms : 0;
}

void set_ratio(BenchRow& row, const RoundTimes& times) {
  row.baseline = times.baseline;
  row.ratio = times.baseline_ms / times.ms;
}

}  // namespace octet
