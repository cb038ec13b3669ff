#include "train/run_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace octet::train_run_statistics_test {
namespace {

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();

StepReport report(int64_t step, float loss, float grad_norm = 0.5F) {
  StepReport r;
  r.step = step;
  r.loss = loss;
  r.grad_norm = grad_norm;
  r.tokens_per_s = 100;
  r.time_ms = 10;
  return r;
}

// Losses that alternate around 2 by 0.1: mean 2, deviation 0.1.
float wobble(int64_t step) {
  return step % 2 == 0 ? 2.1F : 1.9F;
}

TEST(RunStatistics, a_jump_out_of_the_running_mean_is_a_spike_and_noise_is_not) {
  RunStatistics statistics({.window = 50, .spike_deviations = 6});
  for (int64_t step = 1; step <= 200; ++step)
    EXPECT_FALSE(statistics.add(report(step, wobble(step))).has_value()) << step;
  EXPECT_FALSE(statistics.add(report(201, 2.5F)).has_value());
  const auto spike = statistics.add(report(202, 4.0F));
  ASSERT_TRUE(spike.has_value());
  EXPECT_NEAR(spike->mean, 2.0, 0.05);
  EXPECT_NEAR(spike->n_deviations, (4.0 - spike->mean) / spike->deviation, 1e-9);
  EXPECT_GT(spike->n_deviations, 10);
}

TEST(RunStatistics, no_spike_is_told_from_the_first_losses_or_when_switched_off) {
  RunStatistics early({.spike_deviations = 6});
  for (int64_t step = 1; step < 20; ++step) early.add(report(step, 2.0F));
  EXPECT_FALSE(early.add(report(20, 99.0F)).has_value());
  RunStatistics off({.spike_deviations = 0});
  for (int64_t step = 1; step < 99; ++step) off.add(report(step, 2.0F));
  EXPECT_FALSE(off.add(report(99, 99.0F)).has_value());
}

TEST(RunStatistics, a_loss_that_does_not_vary_may_still_move_a_little) {
  RunStatistics statistics({.spike_deviations = 6});
  for (int64_t step = 1; step <= 50; ++step) statistics.add(report(step, 2.0F));
  EXPECT_FALSE(statistics.add(report(51, 2.011F)).has_value());
  EXPECT_TRUE(statistics.add(report(52, 2.1F)).has_value());
}

TEST(RunStatistics, losses_that_are_not_finite_leave_the_mean_alone) {
  RunStatistics with({.interval = 30}), without({.interval = 30});
  for (int64_t step = 1; step <= 30; ++step) {
    without.add(report(step, wobble(step)));
    with.add(report(step, wobble(step)));
    if (step == 15) with.add(report(15, kMissing));
  }
  EXPECT_EQ(with.summary()->running_mean, without.summary()->running_mean);
  EXPECT_EQ(with.summary()->loss_mean, without.summary()->loss_mean);
}

TEST(RunStatistics, the_training_loss_is_of_the_last_finite_losses_before_and_behind_a_resume) {
  RunStatistics statistics({.interval = 0});
  EXPECT_FALSE(statistics.train_loss().has_value());
  for (int64_t step = 1; step <= 15; ++step)
    statistics.replay({.step = step, .loss = static_cast<float>(step)});
  statistics.replay({.step = 16, .loss = 0, .has_labels = false});
  EXPECT_EQ(statistics.train_loss(), 8);
  statistics.add(report(17, kMissing));
  for (int64_t step = 18; step <= 27; ++step)
    statistics.add(report(step, static_cast<float>(step - 2)));
  EXPECT_EQ(statistics.train_loss(), 15.5);  // of 6 to 25
}

TEST(RunStatistics, an_interval_is_summed_up_at_its_end) {
  RunStatistics statistics({.interval = 4, .last_step = 6, .clip = 1.0});
  const float norms[] = {0.5F, 3.0F, kMissing, 1.5F, 0.1F, 0.3F};
  const float losses[] = {4, 3, kMissing, 2, 7, 5};
  std::vector<IntervalSummary> summaries;
  for (int64_t i = 0; i < 6; ++i) {
    StepReport r = report(i + 1, losses[i], norms[i]);
    r.skipped = r.flagged = i == 2;
    r.time_ms = i == 1 ? 30 : 10;
    statistics.add(r);
    if (const auto summary = statistics.summary()) summaries.push_back(*summary);
  }
  ASSERT_EQ(summaries.size(), 2u);
  const IntervalSummary& first = summaries[0];
  EXPECT_EQ(first.first_step, 1);
  EXPECT_EQ(first.last_step, 4);
  EXPECT_DOUBLE_EQ(first.loss_mean, 3);
  EXPECT_DOUBLE_EQ(first.loss_deviation, std::sqrt(2.0 / 3));
  EXPECT_DOUBLE_EQ(first.grad_norm_median, 1.5);
  EXPECT_DOUBLE_EQ(first.grad_norm_max, 3);
  EXPECT_DOUBLE_EQ(first.clip_share, 0.5);
  EXPECT_EQ(first.n_skipped, 1);
  EXPECT_EQ(first.n_flagged, 1);
  EXPECT_DOUBLE_EQ(first.tokens_per_s, 100);
  EXPECT_EQ(summaries[1].first_step, 5);
  EXPECT_EQ(summaries[1].last_step, 6);
  EXPECT_NEAR(summaries[1].grad_norm_median, 0.2, 1e-7);
}

// Their loss of 0 would make the first real one a spike.
TEST(RunStatistics, steps_without_labels_have_no_loss) {
  RunStatistics statistics({.interval = 30}), resumed({.interval = 30});
  for (int i = 1; i <= 30; ++i) {
    StepReport r = report(i, i <= 25 ? 0.0f : 5.5f, i <= 25 ? 0.0f : 2.0f);
    r.labels = i <= 25 ? 0 : 8;
    EXPECT_FALSE(statistics.add(r).has_value()) << i;
    resumed.replay({i, r.loss, r.has_labels()});
  }
  const IntervalSummary summary = statistics.summary().value();
  EXPECT_EQ(summary.n_unlabelled, 25);
  EXPECT_DOUBLE_EQ(summary.loss_mean, 5.5);
  EXPECT_DOUBLE_EQ(summary.grad_norm_median, 2);
  EXPECT_DOUBLE_EQ(summary.running_mean, 5.5);
  StepReport next = report(31, 5.5f, 2);
  EXPECT_EQ(resumed.add(next).has_value(), statistics.add(next).has_value());
}

TEST(RunStatistics, an_interval_without_a_finite_value_is_written_as_null) {
  RunStatistics statistics({.interval = 1});
  statistics.add(report(1, kMissing, kMissing));
  const auto json = nlohmann::json::parse(telemetry_json(statistics.summary().value()));
  EXPECT_EQ(json.at("event"), "interval");
  EXPECT_EQ(json.at("step"), 1);
  for (const char* key : {"loss_mean", "running_loss_mean", "grad_norm_median", "grad_norm_max"})
    EXPECT_TRUE(json.at(key).is_null()) << key;
}

TEST(RunStatistics, an_interval_counts_what_its_steps_count) {
  RunStatistics statistics({.interval = 1});
  StepReport pictures = report(1, 2.0F);
  pictures.unit = kPictures;
  statistics.add(pictures);
  EXPECT_EQ(statistics.summary().value().unit, kPictures);
}

TEST(Telemetry, spike_and_site_are_lines_with_their_step) {
  const auto spike = nlohmann::json::parse(
      telemetry_json(12, 5.0F, {.mean = 3, .deviation = 0.25, .n_deviations = 8}));
  EXPECT_EQ(spike.at("step"), 12);
  EXPECT_EQ(spike.at("event"), "spike");
  EXPECT_EQ(spike.at("deviations"), 8.0);
  NonfiniteSite site{.op = "gemm", .tensor = "%7"};
  site.tag = {.layer = 3, .role = Role::backward, .origin = "up_proj"};
  site.type = {Dtype::bf16, {2, 3}};
  const auto json = nlohmann::json::parse(telemetry_json(13, site));
  EXPECT_EQ(json.at("event"), "nonfinite");
  EXPECT_EQ(json.at("layer"), 3);
  EXPECT_EQ(json.at("role"), "backward");
  EXPECT_EQ(json.at("shape"), (std::vector<int64_t>{2, 3}));
}

TEST(SummaryLine, says_what_a_reader_wants_to_know) {
  IntervalSummary summary;
  summary.first_step = 51;
  summary.last_step = 100;
  summary.loss_mean = 3.21;
  summary.loss_deviation = 0.03;
  summary.grad_norm_median = 1.31;
  summary.grad_norm_max = 4.2;
  summary.clip_share = 0.12;
  summary.tokens_per_s = 8120;
  EXPECT_EQ(summary_line(summary),
            "steps 51 to 100: loss 3.2100, deviation 0.0300; |g| median 1.31, largest 4.20, 12 % "
            "clipped; 0 spikes, 0 skipped; 8120 tokens/s");
  EXPECT_EQ(telemetry_json(summary).find("unit"), std::string::npos);
  summary.unit = kPictures;
  EXPECT_TRUE(summary_line(summary).ends_with("; 8120 pictures/s"));
  EXPECT_TRUE(telemetry_json(summary).ends_with(R"("tokens_per_s":8120.0,"unit":"pictures"})"));
}

}  // namespace
}  // namespace octet::train_run_statistics_test
