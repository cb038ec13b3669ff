// Timing recipes against bf16: steps of the two alternate, so that a machine that slows down
// meanwhile slows both, and the ratio is between those steps.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/step_runner.h"

namespace octet {

inline constexpr const char* kBaselineRecipe = "bf16";

// Treatment of a recipe that this machine cannot compile, or only with its matrix products in
// reference kernels (which take minutes a step).
enum class Refusal : uint8_t { fails, is_left_out };

struct RecipeRounds {
  // The same run with another recipe.
  std::function<RunConfig(const std::string& recipe)> config;
  std::vector<std::string> recipes;
  int64_t documents = 0;  // of a row, where they are isolated
  int rounds = 5;         // timed steps of each recipe, after two to warm up
  Refusal refusal = Refusal::fails;
};

struct RecipePair {
  std::string recipe;
  StepRunner& runner;
  StepRunner& baseline;  // the same object where the recipe is bf16, or alone on a GPU
};

// Calls measure for each recipe, runners warmed up; each gives its memory back before the next. A
// GPU that does not hold the baseline beside each of the recipes runs every one alone. A recipe
// that is left out is a warning.
void for_recipes(const BenchMachine& machine, const RecipeRounds& rounds,
                 const std::function<void(const RecipePair&)>& measure);

struct RoundTimes {
  double ms = 0, baseline_ms = 0;  // medians
  std::string baseline = {};       // the recipe
};

// `step` runs one step and says what it took, in ms.
RoundTimes alternate(const RecipePair& pair, int rounds,
                     const std::function<double(StepRunner&)>& step);

// Set value, unit, floor and share; and baseline and ratio.
void set_time(BenchRow& row, double ms, double floor_ms);
void set_ratio(BenchRow& row, const RoundTimes& times);

}  // namespace octet
