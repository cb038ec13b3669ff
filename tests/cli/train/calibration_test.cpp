// Runs that rescale edges: what they write, and that a resumed one goes on alike.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/program_run.h"
#include "cli/train/tiny_run.h"

namespace octet::train_calibration_test {
namespace {

using test::metrics;
using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using test::tiny_yaml;
using testing::HasSubstr;
using testing::Not;

// One quantizer far too high, one far too low: codes of the first saturate, most of the second are
// flushed.
std::string spoilt(const ScratchFolder& folder, const std::string& recipe,
                   const std::string& more = "") {
  return fmt::format(
      "train {} --set recipe={} --set train.steps=8 --set recipe.edge_scales="
      "[layers.0.down_proj.x=14,layers.1.q_proj.dy=-17]{}",
      folder / "tiny.yaml", recipe, more);
}

std::string scales_of(const ScratchFolder& folder, const std::string& name) {
  const std::string text = posix_files().read_text(folder / (name + "/config.yaml"));
  const size_t at = text.find("edge_scales: ");
  return text.substr(at, text.find('\n', at) - at);
}

class Calibrated : public testing::TestWithParam<const char*> {};

TEST_P(Calibrated, runs_rescale_what_left_its_window_and_resume_alike) {
  const ScratchFolder folder;
  folder.put("tiny.yaml", tiny_yaml(folder));
  const std::string calibrates = " --set recipe.calibrate=3 --set recipe.recheck=6 --set out=";
  const Outcome whole =
      run_program(folder, spoilt(folder, GetParam(), calibrates + (folder / "whole")));
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_THAT(whole.err, HasSubstr("step 3: layers.0.down_proj.x: data of RMS 2^"));
  EXPECT_THAT(whole.err, HasSubstr("step 3: layers.1.q_proj.dy: data of RMS 2^"));
  EXPECT_THAT(whole.err, Not(HasSubstr("step 2: layers.")));
  EXPECT_EQ(metrics(folder / "whole").size(), 8u);
  const std::string scales = scales_of(folder, "whole");
  EXPECT_THAT(scales, Not(HasSubstr("down_proj.x=14")));
  EXPECT_THAT(scales, Not(HasSubstr("q_proj.dy=-17")));

  // Stopped after the calibration, and resumed without being told its scales.
  const Outcome part =
      run_program(folder, spoilt(folder, GetParam(),
                                 " --set train.steps=4 --set optim.schedule=constant" + calibrates +
                                     (folder / "part")));
  ASSERT_EQ(part.code, 0) << part.err;
  const std::string again = fmt::format(
      "train {} --resume --set recipe={} --set train.steps=8 --set "
      "optim.schedule=constant{}{}",
      folder / "tiny.yaml", GetParam(), calibrates, folder / "part");
  const Outcome rest = run_program(folder, again);
  ASSERT_EQ(rest.code, 0) << rest.err;
  const Outcome constant = run_program(folder, spoilt(folder, GetParam(),
                                                      " --overwrite --set optim.schedule=constant" +
                                                          calibrates + (folder / "whole")));
  ASSERT_EQ(constant.code, 0) << constant.err;
  EXPECT_EQ(metrics(folder / "part"), metrics(folder / "whole"));
  EXPECT_EQ(scales_of(folder, "part"), scales_of(folder, "whole"));
}

INSTANTIATE_TEST_SUITE_P(recipes, Calibrated, testing::Values("scalify_fp8", "coat-static"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(Recheck, tells_and_changes_nothing_without_a_calibration) {
  const ScratchFolder folder;
  folder.put("tiny.yaml", tiny_yaml(folder));
  const Outcome plain =
      run_program(folder, spoilt(folder, "scalify_fp8", " --set out=" + (folder / "plain")));
  const Outcome told = run_program(
      folder,
      spoilt(folder, "scalify_fp8",
             " --set recipe.calibrate=0 --set recipe.recheck=4 --set out=" + (folder / "told")));
  ASSERT_EQ(told.code, 0) << told.err;
  EXPECT_THAT(told.err, HasSubstr("step 4: layers.0.down_proj.x: data of RMS 2^"));
  EXPECT_THAT(told.err, Not(HasSubstr("rescaled")));
  EXPECT_THAT(plain.err, Not(HasSubstr("data of RMS")));
  EXPECT_EQ(metrics(folder / "told"), metrics(folder / "plain"));
}

TEST(EdgeScales, that_change_nothing_are_refused) {
  const ScratchFolder folder;
  folder.put("tiny.yaml", tiny_yaml(folder));
  const auto error = [&](const std::string& sets) {
    const Outcome outcome = run_program(folder, "train " + (folder / "tiny.yaml") + " " + sets);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(error("--set recipe=coat-static --set recipe.edge_scales=[layers.7.q_proj.x=1]"),
              HasSubstr("a pattern that matches an operand of a linear (layers.0.down_proj.dy, "));
  EXPECT_THAT(error("--set recipe=coat-static --set recipe.edge_scales=[layers.0.q_proj.x]"),
              HasSubstr("recipe.edge_scales: expected operands with powers from -64 to 64"));
  EXPECT_THAT(error("--set recipe=coat --set recipe.calibrate=5"),
              HasSubstr("recipe.edge_scales: expected none, and recipe.calibrate 0, but with "
                        "propagated scales"));
}

}  // namespace
}  // namespace octet::train_calibration_test
