// octet::Training takes the program's steps, bit by bit, and leaves its files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "library/api/run_files.h"

namespace octet::api_training_test {
namespace {

using test::ScratchFolder;
using testing::HasSubstr;

void expect_same_run(const std::string& run, const std::string& other) {
  EXPECT_EQ(test::metrics(run), test::metrics(other));
  EXPECT_EQ(test::weights_of(run + "/ckpt/step-000006"),
            test::weights_of(other + "/ckpt/step-000006"));
}

TEST(Training, has_the_losses_of_the_program) {
  for (const std::string recipe : {"fp32", "bf16", "coat"}) {
    const ScratchFolder folder;
    const std::vector<std::string> sets = {"recipe=" + recipe, "train.accumulate=2"};
    ASSERT_EQ(test::run_training(folder, sets).code, 0);
    std::vector<std::string> mine = sets;
    mine.push_back("out=" + folder / "mine");
    Training training(test::two_threads(), test::tiny_training(folder, mine));
    EXPECT_EQ(training.out(), folder / "mine");
    const auto steps = test::steps_to_the_end(training);
    const auto lines = test::metrics(folder / "run");
    ASSERT_EQ(steps.size(), 6u);
    ASSERT_EQ(lines.size(), 6u);
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i].step, static_cast<int64_t>(i) + 1);
      EXPECT_EQ(steps[i].steps, 6);
      EXPECT_EQ(steps[i].loss, lines[i]["loss"].get<float>()) << recipe << " " << i;
      EXPECT_EQ(steps[i].grad_norm, lines[i]["grad_norm"].get<float>());
      EXPECT_EQ(steps[i].val_loss.has_value(), i % 2 == 1);
      EXPECT_EQ(nlohmann::json::parse(steps[i].json)["loss"], lines[i]["loss"]);
    }
    expect_same_run(folder / "mine", folder / "run");
    ASSERT_TRUE(training.result().has_value());
    EXPECT_EQ(training.result()->step, 6);
    EXPECT_EQ(training.result()->val_loss, steps.back().val_loss);
    EXPECT_FALSE(training.step().has_value());
  }
}

TEST(Training, resumes_from_where_it_was_saved_and_loses_what_was_not) {
  const ScratchFolder folder;
  ASSERT_EQ(test::run_training(folder, {}).code, 0);
  const auto config = test::tiny_training(folder, {"out=" + folder / "mine"});
  const Machine machine = test::two_threads();
  {
    Training training(machine, config);
    for (int i = 0; i < 2; ++i) training.step();
    training.save();
    EXPECT_EQ(training.steps_done(), 2);
    training.step();  // lost
    EXPECT_EQ(training.steps_done(), 3);
  }
  std::vector<std::string> said;
  Training training(
      machine, config,
      {.start = TrainingStart::resume,
       .on_message = [&](MessageLevel, const std::string& line) { said.push_back(line); }});
  EXPECT_EQ(training.steps_done(), 2);
  EXPECT_THAT(said, testing::Contains(HasSubstr("resuming from")));
  const auto steps = test::steps_to_the_end(training);
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps.front().step, 3);
  expect_same_run(folder / "mine", folder / "run");
}

// There is nothing left to do, and the weights are the run's.
TEST(Training, of_a_finished_run_is_at_its_end) {
  const ScratchFolder folder;
  ASSERT_EQ(test::run_training(folder, {}).code, 0);
  Training training(test::two_threads(), test::tiny_training(folder, {}),
                    {.start = TrainingStart::resume});
  EXPECT_FALSE(training.step().has_value());
  const auto lines = test::metrics(folder / "run");
  const auto& last = lines.back();
  double sum = 0;  // of six steps
  for (const auto& line : lines) sum += line["loss"].get<double>();
  ASSERT_TRUE(training.result().has_value());
  EXPECT_EQ(training.result()->step, 6);
  EXPECT_DOUBLE_EQ(training.result()->train_loss, sum / 6);
  EXPECT_EQ(training.result()->val_loss, last["val_loss"].get<double>());
  EXPECT_EQ(training.evaluate(), last["val_loss"].get<double>());
  training.save();
  EXPECT_EQ(test::metrics(folder / "run").size(), 6u);
}

TEST(Training, goes_on_with_what_the_program_began) {
  const ScratchFolder folder;
  ASSERT_EQ(test::run_training(folder, {"optim.schedule=constant", "train.steps=3"}).code, 0);
  Training training(test::two_threads(),
                    test::tiny_training(folder, {"optim.schedule=constant", "train.steps=6"}),
                    {.start = TrainingStart::resume});
  EXPECT_EQ(training.steps_done(), 3);
  EXPECT_EQ(test::steps_to_the_end(training).size(), 3u);
  const std::string whole = folder / "whole";
  ASSERT_EQ(test::run_training(folder, {"optim.schedule=constant", "out=" + whole}).code, 0);
  EXPECT_EQ(test::weights_of(folder / "run/ckpt/step-000006"),
            test::weights_of(whole + "/ckpt/step-000006"));
}

TEST(Training, evaluates_between_steps_and_changes_nothing) {
  const ScratchFolder folder;
  ASSERT_EQ(test::run_training(folder, {}).code, 0);
  Training training(test::two_threads(), test::tiny_training(folder, {"out=" + folder / "mine"}));
  ASSERT_TRUE(training.evaluate().has_value());  // of the first weights
  while (const auto step = training.step()) {
    const auto loss = training.evaluate();
    ASSERT_TRUE(loss.has_value());
    if (step->val_loss) {
      EXPECT_EQ(*loss, *step->val_loss);
    }
  }
  EXPECT_EQ(training.evaluate(), training.result()->val_loss);
  expect_same_run(folder / "mine", folder / "run");
}

TEST(Training, saves_first_weights_that_a_model_reads) {
  const ScratchFolder folder;
  Training training(test::two_threads(), test::tiny_training(folder, {}));
  training.save();
  Model model(test::two_threads(), training.out());
  const TextLoss loss = model.nll(std::string_view("step amax group scale"));
  EXPECT_EQ(loss.n_tokens, 20);
  EXPECT_NEAR(loss.mean(), std::log(256.0), 0.5);
}

// Two configurations, a step of each in turn, and a model between them that wants other sums of
// rows (cpu::RowSums): each gets its own bits.
TEST(Training, does_not_disturb_others_of_the_process) {
  const ScratchFolder folder;
  const std::vector<std::string> other = {"recipe=coat", "model.hidden=48", "model.heads=6",
                                          "train.seed=7"};
  std::vector<std::string> alone = other;
  alone.push_back("out=" + folder / "other");
  ASSERT_EQ(test::run_training(folder, {}).code, 0);
  ASSERT_EQ(test::run_training(folder, alone).code, 0);
  std::vector<std::string> mine = other;
  mine.push_back("out=" + folder / "b");
  const Machine machine = test::two_threads();
  Training first(machine, test::tiny_training(folder, {"out=" + folder / "a"}));
  Model model(machine, folder / "run");
  const std::string before = model.generate("step ").text;
  Training second(machine, test::tiny_training(folder, mine));
  for (int i = 0; i < 6; ++i) {
    first.step();
    EXPECT_EQ(model.generate("step ").text, before);
    second.step();
  }
  expect_same_run(folder / "a", folder / "run");
  expect_same_run(folder / "b", folder / "other");
}

TEST(Training, runs_on_two_threads_at_once) {
  const ScratchFolder folder;
  ASSERT_EQ(test::run_training(folder, {}).code, 0);
  test::tiny_file(folder);
  const auto train = [&](const std::string& out) {
    Training training(test::two_threads(), {.file = folder / "tiny.yaml", .sets = {"out=" + out}});
    test::steps_to_the_end(training);
  };
  std::thread other(train, folder / "b");
  train(folder / "a");
  other.join();
  expect_same_run(folder / "a", folder / "run");
  expect_same_run(folder / "b", folder / "run");
}

TEST(Training, says_what_is_wrong) {
  const ScratchFolder folder;
  const Machine machine = test::two_threads();
  const auto error_of = [&](const TrainingConfig& config) {
    return test::error_of([&] { const Training training(machine, config); });
  };
  const auto expect = [&](const TrainingConfig& config, ErrorCode code, const std::string& text) {
    const auto [found, message] = error_of(config);
    EXPECT_EQ(found, code) << message;
    EXPECT_THAT(message, HasSubstr(text));
  };
  expect({}, ErrorCode::invalid_argument, "a configuration's file or its text, got neither");
  expect({.file = "a", .text = "b"}, ErrorCode::invalid_argument, "got both");
  expect({.text = "model: {hiden: 3}"}, ErrorCode::invalid_argument, "config:1: model.hiden");
  expect({.file = folder / "no.yaml"}, ErrorCode::invalid_argument, "no.yaml");
  expect(test::tiny_training(folder, {"parallel.ranks=2"}), ErrorCode::invalid_argument,
         "parallel.ranks: expected 1, got 2");
  expect(test::tiny_training(folder, {"data.train=[" + folder / "gone.txt]"}), ErrorCode::bad_data,
         "gone.txt");
  Training holder(machine, test::tiny_training(folder, {}));
  holder.save();
  expect(test::tiny_training(folder, {}), ErrorCode::invalid_argument, folder / "run");
}

TEST(Training, that_fails_says_so_again) {
  const ScratchFolder folder;
  Training training(test::two_threads(),
                    test::tiny_training(folder, {"optim.lr=1000", "optim.warmup=0",
                                                 "train.max_nonfinite_steps=1", "optim.clip=0"}));
  const auto [code, message] = test::error_of([&] { test::steps_to_the_end(training); });
  EXPECT_EQ(code, ErrorCode::numerics) << message;
  const int64_t done = training.steps_done();
  EXPECT_GT(done, 0);
  EXPECT_EQ(test::error_of([&] { training.step(); }).second, message);
  EXPECT_EQ(test::error_of([&] { training.save(); }).second, message);
  EXPECT_EQ(training.steps_done(), done);
}

TEST(Machine, says_what_is_wrong) {
  const auto error = [](const MachineOptions& options) {
    return test::error_of([&] { const Machine machine(options); });
  };
  EXPECT_EQ(error({.device = "tpu"}).second, "[device] expected cpu or cuda, got tpu");
  EXPECT_EQ(error({.isa = "sse"}).second,
            "[isa] expected auto, scalar, avx2, avx512 or amx, got sse");
  EXPECT_EQ(error({.threads = -1}).first, ErrorCode::invalid_argument);
  EXPECT_EQ(error({.device = "cuda", .cuda_module = "/no/such.so"}).first, ErrorCode::device);
  const Machine machine;
  EXPECT_THAT(machine.name(), HasSubstr("cpu"));
  EXPECT_GT(machine.memory_bytes(), 0);
  EXPECT_EQ(error({.isa = "scalar"}).second, "no error");
  if (machine.name() != "cpu (avx2)" && machine.name() != "cpu (scalar)") {
    EXPECT_THAT(error({.isa = "avx2"}).second, HasSubstr("which this process computes with"));
  }
}

}  // namespace
}  // namespace octet::api_training_test
