// Effects of a call of octet::Training::step besides a step: another trainer takes over, a step
// that was left over is told, another thread goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "backends/cpu/backend.h"
#include "library/api/run_files.h"
#include "train/run.h"
#include "train/run_setup.h"

namespace octet::api_steps_test {
namespace {

using test::ScratchFolder;

// One quantizer far too high, which the calibration behind step 3 finds.
TEST(TrainingSteps, go_on_with_other_scales_in_the_call_that_asked_for_them) {
  const ScratchFolder folder;
  const std::vector<std::string> sets = {
      "recipe=scalify_fp8", "recipe.edge_scales=[layers.0.down_proj.x=14]", "recipe.calibrate=3"};
  ASSERT_EQ(test::run_training(folder, sets).code, 0);
  std::vector<std::string> mine = sets, said;
  mine.push_back("out=" + folder / "mine");
  Training training(
      test::two_threads(), test::tiny_training(folder, mine),
      {.on_message = [&](MessageLevel, const std::string& line) { said.push_back(line); }});
  for (int64_t step = 1; step <= 6; ++step) {
    said.clear();
    ASSERT_EQ(training.step().value().step, step);
    EXPECT_EQ(training.steps_done(), step);
    const bool has_resumed = std::ranges::any_of(said, [](const std::string& line) {
      return line.find("resuming from") != std::string::npos;
    });
    EXPECT_EQ(has_resumed, step == 3) << step;
    EXPECT_EQ(training.result().has_value(), step == 6);
  }
  EXPECT_FALSE(training.step().has_value());
  EXPECT_EQ(test::metrics(folder / "mine"), test::metrics(folder / "run"));
  EXPECT_EQ(test::weights_of(folder / "mine/ckpt/step-000006"),
            test::weights_of(folder / "run/ckpt/step-000006"));
}

// Leaves a checkpoint of step `last`, which is done and not written down.
void leave_over(const RunConfig& config, int64_t last) {
  cpu::Backend backend = cpu::make_backend(2, cpu::detect_isa());
  const Dataset data =
      open_run_data(posix_files(), config, resolved(ModelSpec{.vocab = config.model.vocab}));
  TrainHooks hooks;
  hooks.on_step = [&](const StepReport& report) {
    if (report.step == last) throw Error(ErrorCode::io, "enough");
  };
  Run run(config, data,
          {posix_files(), *backend.device, *backend.catalogue,
           std::string(cpu::isa_name(cpu::detect_isa()))},
          StartMode::fresh, hooks);
  EXPECT_EQ(test::error_of([&] { run.to_end(); }).second,
            "enough; the state of step " + std::to_string(last) + " was saved");
  EXPECT_EQ(test::error_of([&] { run.trainer(); }).second,
            test::error_of([&] { run.advance(); }).second);
}

TEST(TrainingSteps, begin_with_the_one_that_was_left_over) {
  for (const int64_t last : {2, 6}) {  // an evaluation is due, and the end
    const ScratchFolder folder;
    ASSERT_EQ(test::run_training(folder, {"out=" + folder / "whole"}).code, 0);
    leave_over(test::tiny_config(folder), last);
    Training training(test::two_threads(), test::tiny_training(folder, {}),
                      {.start = TrainingStart::resume});
    EXPECT_FALSE(training.result().has_value());
    for (int64_t step = last; step <= 6; ++step) {
      const auto done = training.step();
      ASSERT_TRUE(done.has_value());
      EXPECT_EQ(done->step, step);
      EXPECT_EQ(done->val_loss.has_value(), step % 2 == 0);
      EXPECT_EQ(training.steps_done(), step);
    }
    EXPECT_TRUE(training.result().has_value());
    EXPECT_FALSE(training.step().has_value());
    EXPECT_EQ(test::metrics(folder / "run"), test::metrics(folder / "whole"));
    EXPECT_EQ(test::weights_of(folder / "run/ckpt/step-000006"),
              test::weights_of(folder / "whole/ckpt/step-000006"));
  }
}

TEST(TrainingSteps, are_taken_by_threads_in_turn) {
  const ScratchFolder folder;
  ASSERT_EQ(test::run_training(folder, {}).code, 0);
  Training training(test::two_threads(), test::tiny_training(folder, {"out=" + folder / "mine"}));
  for (int64_t step = 1; step <= 6; ++step)
    std::thread([&] { EXPECT_EQ(training.step().value().step, step); }).join();
  EXPECT_EQ(test::metrics(folder / "mine"), test::metrics(folder / "run"));
}

// Another may take it at once; the one that failed keeps nothing.
TEST(TrainingSteps, that_fail_let_the_folder_go) {
  const ScratchFolder folder;
  const auto config = test::tiny_training(
      folder, {"optim.lr=1000", "optim.warmup=0", "train.max_nonfinite_steps=1", "optim.clip=0"});
  Training training(test::two_threads(), config);
  EXPECT_EQ(test::error_of([&] { test::steps_to_the_end(training); }).first, ErrorCode::numerics);
  const Training other(test::two_threads(), config, {.start = TrainingStart::overwrite});
  EXPECT_EQ(other.steps_done(), 0);
}

}  // namespace
}  // namespace octet::api_steps_test
