#include "train/run_guards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/error.h"
#include "unit/base/error_of.h"

namespace octet::train_run_guards_test {
namespace {

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

StepReport step_of(int64_t step, float grad_norm, int64_t labels = 8) {
  StepReport report;
  report.step = step, report.loss = labels > 0 ? 3.0f : 0.0f;
  report.grad_norm = grad_norm, report.labels = labels;
  return report;
}

struct Watched {
  explicit Watched(const TrainConfig& config = {}) : guards(config) {}
  std::string add(const StepReport& report, bool is_last = false) {
    const Log log([&](LogLevel level, const std::string& text) {
      if (level == LogLevel::warning) warnings.push_back(text);
    });
    return test::error_of([&] { guards.check(report, is_last, log); });
  }
  RunGuards guards;
  std::vector<std::string> warnings;
};

TEST(RunGuards, end_a_run_after_three_steps_without_a_gradient) {
  Watched run;
  EXPECT_EQ(run.add(step_of(1, 0)), "no error");
  EXPECT_EQ(run.warnings,
            std::vector<std::string>{"step 1: the gradient is 0 though the step has labels"});
  EXPECT_EQ(run.add(step_of(2, 1)), "no error");
  for (const int step : {3, 4}) EXPECT_EQ(run.add(step_of(step, 0)), "no error");
  EXPECT_EQ(run.add(step_of(5, 0)),
            "[train] expected a step that learns, got one in which the gradient is 0 though the "
            "step has labels at step 5, the last of 3 such steps (train.max_zero_gradients)");
}

TEST(RunGuards, go_on_without_a_gradient_where_the_key_says_so) {
  TrainConfig config;
  config.max_zero_gradients = 0;
  Watched run(config);
  for (int step = 1; step <= 9; ++step) EXPECT_EQ(run.add(step_of(step, 0)), "no error");
  EXPECT_EQ(run.warnings.size(), 1u);
}

// Lengths beside which optim.eps is all.
TEST(RunGuards, take_a_gradient_that_moves_no_weight_for_none) {
  Watched run;
  for (const int step : {1, 2}) EXPECT_EQ(run.add(step_of(step, 1e-32f)), "no error");
  EXPECT_EQ(run.warnings.front(), "step 1: the gradient is 1e-32 long, which moves no weight");
  EXPECT_EQ(run.add(step_of(3, 1e-12f)),
            "[train] expected a step that learns, got one in which the gradient is 1e-12 long, "
            "which moves no weight at step 3, the last of 3 such steps (train.max_zero_gradients)");
  OptimConfig optim;
  optim.clip = 1e-12;
  Watched clipped;
  clipped.guards = RunGuards({}, optim);
  EXPECT_EQ(clipped.add(step_of(1, 5)), "no error");
  EXPECT_EQ(clipped.warnings.front(),
            "step 1: optim.clip makes the gradient 1e-12 long, which moves no weight");
  optim.clip = 1e-6;
  Watched small;
  small.guards = RunGuards({}, optim);
  EXPECT_EQ(small.add(step_of(1, 5)), "no error");
  optim.clip = 1e-12, optim.kind = UpdateKind::lamb;
  small.guards = RunGuards({}, optim);
  EXPECT_EQ(small.add(step_of(2, 5)), "no error");
  optim.kind = UpdateKind::adamw, optim.rules = {{.match = "*", .kind = UpdateKind::lamb}};
  small.guards = RunGuards({}, optim);
  EXPECT_EQ(small.add(step_of(3, 5)), "no error");
  optim.rules = {}, optim.eps = 1e-15;  // beside which 1e-12 is much
  small.guards = RunGuards({}, optim);
  EXPECT_EQ(small.add(step_of(4, 5)), "no error");
  EXPECT_TRUE(small.warnings.empty());
}

// Steps that had a gradient and labels count, at rates that rise to 1.
TEST(RunGuards, look_at_the_weights_behind_the_first_steps) {
  OptimConfig optim;
  optim.lr = 1;
  RunGuards guards({}, optim);
  const auto step = [](int64_t number, double lr) {
    StepReport report = step_of(number, 1);
    report.lr = lr;
    return report;
  };
  StepReport skipped = step(1, 1e-4);
  skipped.skipped = true;
  EXPECT_FALSE(guards.ends_first_steps(skipped));
  StepReport unlabelled = step_of(2, 0, 0);
  EXPECT_FALSE(guards.ends_first_steps(unlabelled));
  EXPECT_FALSE(guards.ends_first_steps(step(3, 1e-4)));
  EXPECT_FALSE(guards.ends_first_steps(step(4, 1e-4)));
  EXPECT_TRUE(guards.ends_first_steps(step(5, 1e-4)));
  EXPECT_FALSE(guards.ends_first_steps(step(6, 1e-4)));
  std::vector<std::string> warnings;
  const Log log([&](LogLevel, const std::string& text) { warnings.push_back(text); });
  const auto check = [&](double moved) {
    return test::error_of([&] { guards.check_movement(moved, step(5, 1e-4), log); });
  };
  EXPECT_EQ(check(1e-12), "no error");  // 3e-9 a step where the rate is 1
  EXPECT_EQ(check(kNotANumber), "no error");
  EXPECT_TRUE(warnings.empty());
  EXPECT_EQ(check(1e-13),
            "[train] expected steps that learn, got a step 5 after which no weight has moved by "
            "more than 1e-13 in 3 steps (optim.lr, optim.rules) (train.max_zero_gradients)");
  TrainConfig goes_on;
  goes_on.max_zero_gradients = 0;
  guards = RunGuards(goes_on, optim);
  for (const int number : {1, 2, 3}) guards.ends_first_steps(step(number, 1));
  EXPECT_EQ(check(0), "no error");
  EXPECT_EQ(warnings.size(), 2u);
}

TEST(RunGuards, take_equal_losses_of_all_ranks_alike) {
  Watched run;
  StepReport report = step_of(1, 1);
  report.equal_losses = true;
  EXPECT_EQ(run.add(report), "no error");
  report.step = 2;
  EXPECT_EQ(run.add(report), "no error");
  report.step = 3;
  EXPECT_THAT(run.add(report), testing::HasSubstr("all ranks have the same loss, 3 in all, though "
                                                  "their rows differ at step 3"));
}

TEST(RunGuards, count_steps_without_labels_and_not_as_lost_gradients) {
  Watched run;
  EXPECT_EQ(run.add(step_of(1, 1)), "no error");
  for (int step = 2; step <= 20; ++step) EXPECT_EQ(run.add(step_of(step, 0, 0)), "no error");
  EXPECT_EQ(run.guards.n_unlabelled(), 19);
  EXPECT_TRUE(run.warnings.empty());
  EXPECT_THAT(run.add(step_of(21, 0, 0)),
              testing::StartsWith("[data] expected labels to train on, got none in 20 steps"));
}

TEST(RunGuards, end_a_short_run_that_has_no_label) {
  Watched run;
  EXPECT_EQ(run.add(step_of(1, 0, 0)), "no error");
  EXPECT_THAT(run.add(step_of(2, 0, 0), true), testing::HasSubstr("got none in 2 steps in a row"));
}

TEST(RunGuards, go_on_from_what_a_checkpoint_says) {
  Watched before, after;
  for (const int step : {1, 2}) before.add(step_of(step, 0));
  KeyValues extra;
  before.guards.write(extra);
  after.guards.read(extra, 2, "ckpt");
  EXPECT_THAT(after.add(step_of(3, 0)), testing::HasSubstr("the last of 3 such steps"));
  Watched old;
  old.guards.read({{"nonfinite_in_a_row", "1"}}, 2, "ckpt");
  EXPECT_EQ(old.add(step_of(3, 1)), "no error");
  for (const char* text : {"3", "-1", "x", ""}) {
    EXPECT_THAT(test::error_of([&] {
                  old.guards.read({{"unlabelled", text}}, 2, "ckpt");
                }),
                testing::StartsWith("[resume] ckpt/manifest.json: 'unlabelled' must be"))
        << text;
  }
}

TEST(BadEnd, is_a_loss_or_evaluation_that_is_not_finite) {
  StepReport good = step_of(9, 1), loss = good, evaluation = good, skipped = good;
  EXPECT_EQ(bad_end(good), std::nullopt);
  loss.loss = -kNotANumber;
  EXPECT_EQ(bad_end(loss), "loss nan at step 9");
  loss.val_loss = 3;
  EXPECT_EQ(bad_end(loss), "loss nan at step 9 and validation loss 3.0000");
  evaluation.val_loss = -kNotANumber;
  EXPECT_EQ(bad_end(evaluation), "loss 3.0000 at step 9 and validation loss nan");
  skipped.skipped = true;
  EXPECT_EQ(bad_end(skipped), "loss 3.0000 and a gradient that is not finite at step 9");
  skipped.val_loss = 3;  // the model is good
  EXPECT_EQ(bad_end(skipped), std::nullopt);
}

}  // namespace
}  // namespace octet::train_run_guards_test
