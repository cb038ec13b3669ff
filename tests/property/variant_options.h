// Runs of small models with one choice of the configuration changed.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "compile/program.h"
#include "config/load.h"
#include "infer/model_spec.h"
#include "train/run_setup.h"

namespace octet::test {

// Two layers of a family under a recipe, or nothing where the configuration is refused.
inline std::optional<ProgramOptions> variant_options(std::string_view family,
                                                     const std::string& recipe,
                                                     const std::vector<std::string>& choice) {
  std::vector<std::string> sets = {"model.kind=" + std::string(family), "model.layers=2",
                                   "recipe.base=" + recipe};
  sets.insert(sets.end(), choice.begin(), choice.end());
  try {
    const RunConfig config = load_config(OCTET_SOURCE_DIR "/recipes/llama-25m.yaml", sets).config;
    return program_options(config, model_from_config(posix_files(), config));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    return std::nullopt;
  }
}

}  // namespace octet::test
