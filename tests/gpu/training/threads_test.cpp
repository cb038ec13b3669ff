// CUDA has a current device for each thread: a run may be called by several in turn.
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "gpu/parity/gpu.h"
#include "library/api/run_files.h"

namespace octet::training_threads_test {
namespace {

using test::ScratchFolder;

// The second GPU, which no thread has that did not ask for it, or the first where that is the only
// one or this process's already. Nothing where there is none.
std::optional<Machine> gpu_machine(std::string& why) {
  for (const int index : {1, 0}) {
    try {
      return Machine(
          {.device = "cuda", .threads = 2, .device_index = index, .cuda_module = gpu_module()});
    } catch (const Error& error) {
      why = error.what();
    }
  }
  return std::nullopt;
}

TrainingConfig config_of(const ScratchFolder& folder, const std::string& out) {
  return test::tiny_training(
      folder, {"recipe=bf16", "train.steps=4", "train.deterministic=true", "out=" + folder / out});
}

TEST(TrainingThreads, of_a_gpu_take_steps_in_turn) {
  std::string why;
  const std::optional<Machine> machine = gpu_machine(why);
  if (!machine) GTEST_SKIP() << why;
  const ScratchFolder folder;
  Training alone(*machine, config_of(folder, "alone"));
  const auto expected = test::steps_to_the_end(alone);
  ASSERT_EQ(expected.size(), 4u);
  Training training(*machine, config_of(folder, "mine"));
  const auto elsewhere = [](const auto& call) { std::thread(call).join(); };
  std::vector<TrainingStep> steps;
  for (int i = 0; i < 2; ++i) {
    steps.push_back(training.step().value());
    elsewhere([&] { training.save(); });
    elsewhere([&] {
      steps.push_back(training.step().value());
      EXPECT_EQ(training.evaluate(), steps.back().val_loss);
    });
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(steps[i].loss, expected[i].loss);
    EXPECT_EQ(steps[i].grad_norm, expected[i].grad_norm);
    EXPECT_EQ(steps[i].val_loss, expected[i].val_loss);
  }
  EXPECT_TRUE(training.result().has_value());
}

TEST(TrainingThreads, of_a_gpu_ask_one_model_in_turn) {
  std::string why;
  const std::optional<Machine> machine = gpu_machine(why);
  if (!machine) GTEST_SKIP() << why;
  const ScratchFolder folder;
  Training training(*machine, config_of(folder, "run"));
  training.save();
  Model model(*machine, folder / "run");
  const double here = model.nll("step amax group scale").mean();
  std::thread([&] { EXPECT_EQ(model.nll("step amax group scale").mean(), here); }).join();
}

}  // namespace
}  // namespace octet::training_threads_test
