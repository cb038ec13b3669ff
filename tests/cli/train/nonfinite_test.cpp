// Values that are not finite: found, named, skipped, counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cli/train/trainer_run.h"
#include "formats/bits.h"
#include "unit/base/error_of.h"

namespace octet::train_nonfinite_test {
namespace {

using test::ScratchFolder;
using test::tiny_config;
using test::TinyRun;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Recipes : public testing::TestWithParam<std::string> {};

std::vector<std::string> debug_sets(const std::vector<std::string>& more) {
  std::vector<std::string> sets = {"train.debug_nonfinite=true"};
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

TEST_P(Recipes, a_weight_that_is_nan_is_named_with_the_op_that_read_it_first) {
  const ScratchFolder folder;
  TinyRun run(tiny_config(folder, debug_sets({"recipe=" + GetParam()})));
  run.trainer.step();
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  run.set_one(name, 7, kNan);
  const StepReport report = run.trainer.step();
  EXPECT_TRUE(report.skipped);
  ASSERT_TRUE(report.site.has_value());
  const NonfiniteSite& site = *report.site;
  EXPECT_EQ(site.cause, NonfiniteSite::Cause::input) << to_string(site);
  EXPECT_EQ(site.tensor, name);
  EXPECT_EQ(site.n_nan, 1);
  EXPECT_EQ(site.n_inf, 0);
  EXPECT_EQ(site.first, 7);
  EXPECT_EQ(site.tag.layer, 1);
  EXPECT_EQ(site.tag.role, Role::forward);
}

// The norm of layer 1 is the first that can overflow: its weight alone is large, and finite.
TEST_P(Recipes, an_overflow_is_named_with_its_op_and_layer) {
  const ScratchFolder folder;
  TinyRun run(tiny_config(folder, debug_sets({"recipe=" + GetParam()})));
  run.fill("model.layers.1.post_attention_layernorm.weight", 3e38F);
  const StepReport report = run.trainer.step();
  EXPECT_TRUE(report.skipped);
  ASSERT_TRUE(report.site.has_value());
  const NonfiniteSite& site = *report.site;
  EXPECT_NE(site.cause, NonfiniteSite::Cause::input) << to_string(site);
  EXPECT_THAT(site.op, testing::StartsWith("rms_norm")) << to_string(site);
  EXPECT_EQ(site.tag.layer, 1) << to_string(site);
  EXPECT_EQ(site.tag.role, Role::forward) << to_string(site);
}

INSTANTIATE_TEST_SUITE_P(all, Recipes,
                         testing::Values("fp32", "bf16", "fp8_linear", "coat", "hif8"),
                         [](const auto& info) { return info.param; });

TEST(Nonfinite, without_clipping_and_with_accumulation_it_is_found_too) {
  for (const std::vector<std::string>& sets :
       {std::vector<std::string>{"optim.clip=0"}, {"train.accumulate=3"}}) {
    const ScratchFolder folder;
    TinyRun run(tiny_config(folder, debug_sets(sets)));
    run.set_one("model.norm.weight", 3, kNan);
    const StepReport report = run.trainer.step();
    EXPECT_TRUE(report.skipped);
    ASSERT_TRUE(report.site.has_value()) << sets[0];
    EXPECT_EQ(report.site->tensor, "model.norm.weight") << sets[0];
  }
}

TEST(Nonfinite, a_step_whose_values_are_finite_is_not_traced) {
  const ScratchFolder folder;
  TinyRun run(tiny_config(folder, debug_sets({})));
  EXPECT_FALSE(run.trainer.step().site.has_value());
}

// A step with a bad weight, then the weight as it was: with tracing and without, the same bits.
std::vector<uint32_t> losses_around_a_bad_step(const RunConfig& config) {
  TinyRun run(config);
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  std::vector<uint32_t> bits;
  for (int step = 1; step <= 6; ++step) {
    if (step == 3) run.set_one(name, 0, kNan);
    if (step == 4) run.set_one(name, 0, 0.5F);
    const StepReport report = run.trainer.step();
    EXPECT_EQ(report.skipped, step == 3);
    bits.push_back(bits_of(report.loss));
  }
  return bits;
}

TEST(Nonfinite, tracing_changes_no_bit_of_the_steps_that_follow) {
  for (const char* recipe : {"bf16", "fp8_linear", "coat"}) {
    const ScratchFolder folder;
    std::vector<std::string> sets = {"recipe=" + std::string(recipe), "recipe.scaling=delayed"};
    const auto without = losses_around_a_bad_step(tiny_config(folder, sets));
    const auto with = losses_around_a_bad_step(tiny_config(folder, debug_sets(sets)));
    EXPECT_EQ(with, without) << recipe;
  }
}

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::istringstream text(posix_files().read_text(path));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(Nonfinite, is_logged_in_one_line_and_counted_until_the_run_stops) {
  const ScratchFolder folder;
  TinyRun run(tiny_config(folder, debug_sets({"train.max_nonfinite_steps=2", "recipe=coat"})));
  run.set_one("lm_head.weight", 5, kNan);
  std::vector<std::string> warnings;
  TrainHooks hooks;
  hooks.log = Log([&](LogLevel level, const std::string& text) {
    if (level == LogLevel::warning) warnings.push_back(text);
  });
  const std::string error = test::error_of([&] { run.trainer.run(StartMode::fresh, hooks); });
  EXPECT_THAT(error, testing::HasSubstr("at step 2, the last of 2 such steps"));
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_THAT(warnings[0], testing::StartsWith("step 1: lm_head.weight "));
  EXPECT_THAT(warnings[0], testing::HasSubstr("held 1 NaN, the first at 5, before "));
  EXPECT_EQ(warnings[0].find('\n'), std::string::npos);
  const auto telemetry = lines_of(folder / "run/telemetry.jsonl");
  ASSERT_EQ(telemetry.size(), 2u);
  EXPECT_EQ(telemetry[1].at("event"), "nonfinite");
  EXPECT_EQ(telemetry[1].at("step"), 2);
  EXPECT_EQ(telemetry[1].at("tensor"), "lm_head.weight");
  for (const auto& line : lines_of(folder / "run/metrics.jsonl")) EXPECT_EQ(line.at("skipped"), 1);
}

// Telemetry of a run in two parts is that of a run in one, but for what depends on the clock.
TEST(Telemetry, of_a_resumed_run_reads_as_if_nothing_had_happened) {
  const ScratchFolder folder;
  const std::vector<std::string> sets = {"train.telemetry_every=4", "train.save_every=3",
                                         "train.steps=10", "recipe=coat"};
  const auto with_out = [&](const std::string& name) {
    std::vector<std::string> all = sets;
    all.push_back("out=" + (folder / name));
    return tiny_config(folder, all);
  };
  TinyRun(with_out("whole")).trainer.run(StartMode::fresh, {});
  std::atomic<int> flag = 0;
  TrainHooks hooks;
  hooks.stop = &flag;
  hooks.on_step = [&flag](const StepReport& report) { flag = report.step == 6 ? 15 : 0; };
  TinyRun(with_out("parts")).trainer.run(StartMode::fresh, hooks);
  TinyRun(with_out("parts")).trainer.run(StartMode::resume, {});
  auto whole = lines_of(folder / "whole/telemetry.jsonl");
  auto parts = lines_of(folder / "parts/telemetry.jsonl");
  ASSERT_EQ(whole.size(), 3u);
  for (auto* lines : {&whole, &parts}) {
    for (auto& line : *lines) line.erase("tokens_per_s");
  }
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(whole[2].at("first_step"), 9);
  EXPECT_EQ(whole[2].at("step"), 10);

  int n_event_files = 0;
  for (const DirectoryEntry& entry : posix_files().list(folder / "parts"))
    n_event_files += entry.name.starts_with("events.out.tfevents.") ? 1 : 0;
  EXPECT_EQ(n_event_files, 2);  // one a start
}

TEST(Telemetry, is_left_out_where_it_is_not_wanted) {
  const ScratchFolder folder;
  TinyRun(tiny_config(folder, {"train.telemetry_every=0", "train.tensorboard=false"}))
      .trainer.run(StartMode::fresh, {});
  EXPECT_TRUE(lines_of(folder / "run/telemetry.jsonl").empty());
  for (const DirectoryEntry& entry : posix_files().list(folder / "run"))
    EXPECT_FALSE(entry.name.starts_with("events.")) << entry.name;
}

}  // namespace
}  // namespace octet::train_nonfinite_test
