#include "bench/recipe_rounds.h"

#include "base/error.h"

namespace octet {
namespace {

constexpr int kWarmUp = 2;

std::unique_ptr<StepRunner> warm_runner(const BenchMachine& machine, const RecipeRounds& rounds,
                                        const std::string& recipe) {
  machine.log.info("bench: recipe {}", recipe);
  auto runner = std::make_unique<StepRunner>(rounds.config(recipe), machine);
  for (int i = 0; i < kWarmUp; ++i) runner->step_ms();
  return runner;
}

}  // namespace

void for_recipes(const BenchMachine& machine, const RecipeRounds& rounds,
                 const std::function<void(const RecipePair&)>& measure) {
  const auto baseline = warm_runner(machine, rounds, kBaselineRecipe);
  for (const std::string& recipe : rounds.recipes) {
    if (recipe == kBaselineRecipe) {
      measure({recipe, *baseline, *baseline});
      continue;
    }
    std::unique_ptr<StepRunner> runner;
    try {
      runner = warm_runner(machine, rounds, recipe);
    } catch (const Error& error) {
      if (rounds.refusal == Refusal::fails || error.code() == ErrorCode::device) throw;
      machine.log.warning("bench: recipe {} left out: {}", recipe, error.what());
      continue;
    }
    measure({recipe, *runner, *baseline});
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
  return {.ms = ms, .baseline_ms = baseline_times.empty() ? ms : median(baseline_times)};
}

void set_time(BenchRow& row, double ms, double floor_ms) {
  row.value = ms;
  row.unit = "ms";
  row.floor = floor_ms;
  row.share = ms > 0 ? floor_ms / ms : 0;
}

void set_ratio(BenchRow& row, const RoundTimes& times) {
  row.baseline = kBaselineRecipe;
  row.ratio = times.baseline_ms / times.ms;
}

}  // namespace octet
