// Predicted times of steps beside measured ones of docs/results/h200/step-speeds.csv, and the
// settings that fit a device.
#include "train/step_speed.h"

#include <gtest/gtest.h>

#include <sstream>

#include "backends/cuda/backend.h"
#include "compile/budget.h"
#include "config/load.h"
#include "infer/model_spec.h"
#include "train/fitting_sets.h"
#include "train/run_setup.h"

namespace octet::cuda_plans_step_speed_test {
namespace {

struct MeasuredStep {
  std::string config, recipe;
  std::vector<std::string> sets;
  bool is_held_out = false;  // the rates were not made from it
  double tokens_per_s = 0;
};

std::vector<std::string> words_of(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
  return words;
}

std::vector<MeasuredStep> measured_steps() {
  std::istringstream lines(
      posix_files().read_text(OCTET_SOURCE_DIR "/docs/results/h200/step-speeds.csv"));
  std::vector<MeasuredStep> steps;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#') || line.starts_with("config,")) continue;
    const std::vector<std::string> cells = words_of(line, ',');
    steps.push_back({cells.at(0), cells.at(1), words_of(cells.at(2), ' '),
                     cells.at(3) == "held out", std::stod(cells.at(4))});
    steps.back().sets.push_back("recipe.base=" + cells[1]);
  }
  return steps;
}

double predicted_tokens_per_s(const MeasuredStep& step, const Catalogue& catalogue) {
  const std::string path = std::string(OCTET_SOURCE_DIR "/recipes/") + step.config + ".yaml";
  const RunConfig config = load_config(path, step.sets).config;
  const ModelSpec spec = model_from_config(posix_files(), config);
  Program program(program_options(config, spec), catalogue);
  return static_cast<double>(config.train.batch * config.model.seq) /
         predicted_seconds(program, measured_card());
}

TEST(StepSpeed, is_within_a_tenth_of_what_was_measured) {
  const Backend gpu = cuda::make_plan_backend({.n_threads = 1});
  int n_held_out = 0;
  for (const MeasuredStep& step : measured_steps()) {
    const double predicted = predicted_tokens_per_s(step, *gpu.catalogue);
    EXPECT_NEAR(predicted / step.tokens_per_s, 1, 0.1)
        << step.config << " " << step.recipe << ": " << predicted << " for " << step.tokens_per_s;
    n_held_out += step.is_held_out ? 1 : 0;
  }
  EXPECT_GE(n_held_out, 5);
}

TEST(FittingSets, are_planned_and_none_beats_another) {
  const Backend gpu = cuda::make_plan_backend({.n_threads = 1});
  const auto config_with = [](const std::vector<std::string>& sets) {
    return load_config(OCTET_SOURCE_DIR "/recipes/llama-124m.yaml", sets).config;
  };
  constexpr int64_t kLimit = int64_t{6} << 30;
  const std::vector<FittingSet> sets =
      fitting_sets(posix_files(), config_with, *gpu.catalogue, measured_card(), kLimit).sets;
  ASSERT_GE(sets.size(), 2U);
  for (size_t i = 0; i < sets.size(); ++i) {
    const RunConfig config = config_with(sets[i].sets);  // as a user would set it
    EXPECT_EQ(config.train.batch * config.train.accumulate, 32);
    const ModelSpec spec = model_from_config(posix_files(), config);
    const auto program = fit_to_budget(program_options(config, spec), *gpu.catalogue);
    EXPECT_LE(program->planned_bytes(), kLimit);
    EXPECT_EQ(program->planned_bytes(), sets[i].planned_bytes);
    if (i == 0) continue;
    EXPECT_LE(sets[i].tokens_per_s, sets[i - 1].tokens_per_s);
    EXPECT_TRUE(sets[i].planned_bytes < sets[i - 1].planned_bytes ||
                sets[i].sets.size() < sets[i - 1].sets.size());
  }
}

}  // namespace
}  // namespace octet::cuda_plans_step_speed_test
