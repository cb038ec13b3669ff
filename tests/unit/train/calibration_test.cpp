#include "train/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "comm/local.h"

namespace octet::train_calibration_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Data of RMS 2^drift.
EdgeStatistics edge(const std::string& name, Dtype dtype, double drift, double saturated = 0) {
  return {.edge = name,
          .tag = {.layer = name.starts_with("layers.") ? 3 : -1},
          .dtype = dtype,
          .n = 100,
          .rms = std::exp2(drift),
          .amax = std::exp2(drift + 2),
          .saturated = saturated,
          .snr = {}};
}

std::vector<std::string> scales_after(const std::vector<std::string>& before,
                                      const std::vector<EdgeStatistics>& edges) {
  return with_rescales(before, alarms_of(edges, nullptr, AlarmRule::by_window));
}

TEST(Calibration, looks_once_and_then_every_so_many_steps) {
  const auto steps = [](const Calibration& calibration) {
    std::vector<int64_t> result;
    for (int64_t step = 1; step <= 30; ++step)
      if (calibration.samples(step)) result.push_back(step);
    return result;
  };
  EXPECT_THAT(steps({.first = 0, .recheck = 0}), IsEmpty());
  EXPECT_THAT(steps({.first = 4, .recheck = 0}), ElementsAre(4));
  EXPECT_THAT(steps({.first = 4, .recheck = 10}), ElementsAre(4, 10, 20, 30));
  EXPECT_THAT(steps({.first = 0, .recheck = 15}), ElementsAre(15, 30));
}

// A checkpoint records the step that was rescaled: what a resumed run samples is the same.
TEST(Calibration, looks_again_behind_a_step_that_was_rescaled) {
  Calibration calibration{.first = 0, .recheck = 10, .rescaled = 20};
  EXPECT_TRUE(calibration.samples(21));
  EXPECT_FALSE(calibration.samples(22));
  calibration.rescaled = 23;
  EXPECT_TRUE(calibration.samples(24));
  calibration.rescaled = 24;  // not for ever
  EXPECT_FALSE(calibration.samples(25));
  calibration.rescaled = 21, calibration.recheck = 0;
  EXPECT_FALSE(calibration.samples(22));
}

TEST(Calibration, brings_data_back_to_the_middle_of_the_window) {
  EXPECT_THAT(
      scales_after({}, {edge("layers.3.down_proj.x", Dtype::e4m3, 8, 0.1),
                        edge("layers.3.q_proj.dy", Dtype::e5m2, -14.2),
                        edge("layers.3.q_proj.x", Dtype::fp16, -13)}),
      ElementsAre("layers.3.down_proj.x=-7", "layers.3.q_proj.dy=15", "layers.3.q_proj.x=13"));
}

TEST(Calibration, leaves_what_is_inside_or_no_operand_of_a_layer) {
  EXPECT_THAT(scales_after({}, {edge("layers.3.down_proj.x", Dtype::e4m3, 1),
                                edge("layers.3.up_proj.x", Dtype::e4m3, 6.5),  // nothing saturates
                                edge("layers.3.up_proj.w", Dtype::bf16, 40),
                                edge("grad:a.weight", Dtype::fp16, -20),
                                edge("lm_head.x", Dtype::fp16, -20)}),
              IsEmpty());
}

std::vector<std::string> measured(const std::vector<EdgeStatistics>& edges,
                                  AlarmRule rule = AlarmRule::by_maximum) {
  return with_rescales({}, alarms_of(edges, nullptr, rule));
}

// A few channels that grew leave the RMS of the codes where it was: they saturate.
TEST(Calibration, goes_by_what_saturates_where_the_rms_is_inside_the_window) {
  EdgeStatistics x = edge("layers.3.down_proj.x", Dtype::e4m3, 1, 1e-5);
  x.source_amax = 100 * 448;
  EXPECT_THAT(scales_after({}, {x}), IsEmpty());
  EXPECT_THAT(measured({x}), ElementsAre("layers.3.down_proj.x=-8"));
  x.source_amax = 450;  // rounds to the largest code
  EXPECT_THAT(measured({x}), IsEmpty());
  x.source_amax.reset();
  EXPECT_THAT(measured({x}), ElementsAre("layers.3.down_proj.x=-3"));
  EdgeStatistics dy = edge("layers.3.down_proj.dy", Dtype::e5m2, 12, 5e-4);
  EXPECT_THAT(measured({dy}), IsEmpty());
  dy.saturated = 2e-3;
  EXPECT_THAT(measured({dy}), ElementsAre("layers.3.down_proj.dy=-8"));
  dy.source_amax = 16 * 57344;
  EXPECT_THAT(measured({dy}), ElementsAre("layers.3.down_proj.dy=-5"));
}

TEST(Calibration, takes_no_data_up_beyond_half_of_the_range) {
  EdgeStatistics x = edge("layers.3.down_proj.x", Dtype::e4m3, -9);
  x.source_amax = 100;
  EXPECT_THAT(measured({x}), ElementsAre("layers.3.down_proj.x=1"));
  x.source_amax = 300;
  EXPECT_THAT(measured({x}), IsEmpty());
}

TEST(Calibration, counts_what_is_flushed_before_the_first_step_alone) {
  EdgeStatistics x = edge("layers.3.down_proj.x", Dtype::e4m3, 0);
  x.zeros = 0.1;
  EXPECT_THAT(measured({x}), IsEmpty());
  EXPECT_THAT(measured({x}, AlarmRule::before_first_step), ElementsAre("layers.3.down_proj.x=3"));
  EdgeStatistics all = x;  // nothing is left of it
  all.rms = all.amax = 0, all.zeros = 1;
  all.source_amax = 1.0 / 4096;
  EXPECT_THAT(measured({all}), ElementsAre("layers.3.down_proj.x=19"));
}

// Inputs grow in the first steps: an eighth of the range, where weights are raised to half of it.
TEST(Calibration, leaves_inputs_more_room_than_weights_before_the_first_step) {
  constexpr AlarmRule kFirst = AlarmRule::before_first_step;
  for (const bool is_flushed : {true, false}) {
    EdgeStatistics x = edge("layers.3.down_proj.x", Dtype::e4m3, is_flushed ? 0 : -9);
    EdgeStatistics w = edge("layers.3.down_proj.w", Dtype::e4m3, is_flushed ? 0 : -9);
    if (is_flushed) x.zeros = w.zeros = 0.1;
    x.source_amax = w.source_amax = 3.5;
    EXPECT_THAT(measured({x}, kFirst), ElementsAre("layers.3.down_proj.x=4"));
    EXPECT_THAT(measured({w}, kFirst), ElementsAre("layers.3.down_proj.w=6"));
    x.source_amax = 100;  // inside the upper three powers: no room, no reason to go down
    EXPECT_THAT(measured({x}, kFirst), IsEmpty());
  }
  EdgeStatistics x = edge("layers.3.down_proj.x", Dtype::e4m3, -9);
  x.source_amax = 3.5;  // in a run that goes on a recheck looks again
  EXPECT_THAT(measured({x}), ElementsAre("layers.3.down_proj.x=6"));
}

// They share a scale: the largest weight of the group has room in it.
TEST(Calibration, of_linears_that_share_a_scale_is_that_of_the_largest) {
  EdgeStatistics gate = edge("layers.3.gate_proj.w", Dtype::e4m3, -6);
  EdgeStatistics up = edge("layers.3.up_proj.w", Dtype::e4m3, 3);
  gate.group = up.group = "layers.3.gate_proj";
  EXPECT_THAT(measured({gate, up}), ElementsAre("layers.3.gate_proj.w=2", "layers.3.up_proj.w=2"));
  up.amax = 200;
  EXPECT_THAT(measured({gate, up}), IsEmpty());
  up.saturated = 1e-4, up.source_amax = 4 * 448;
  EXPECT_THAT(measured({gate, up}),
              ElementsAre("layers.3.gate_proj.w=-3", "layers.3.up_proj.w=-3"));
}

TEST(Calibration, adds_to_what_was_rescaled_before) {
  EXPECT_THAT(scales_after({"*.down_proj.x=-2", "layers.3.up_proj.w=1"},
                           {edge("layers.3.down_proj.x", Dtype::e4m3, 8, 0.1),
                            edge("layers.3.up_proj.w", Dtype::e4m3, -6)}),
              ElementsAre("*.down_proj.x=-2", "layers.3.down_proj.x=-9", "layers.3.up_proj.w=8"));
}

TEST(Calibration, takes_the_first_edge_that_overflows_as_the_cause_of_the_others) {
  EdgeStatistics first = edge("layers.3.o_proj.dy", Dtype::fp16, 3), next = first;
  first.nonfinite = 0.25, next.nonfinite = 1;
  next.edge = "layers.3.q_proj.dy";
  const EdgeStatistics before = edge("layers.3.down_proj.dy", Dtype::fp16, -13);
  const auto alarms = alarms_of({before, first, next}, nullptr, AlarmRule::by_window);
  EXPECT_THAT(with_rescales({}, alarms),
              ElementsAre("layers.3.down_proj.dy=13", "layers.3.o_proj.dy=-12"));
  EXPECT_EQ(alarm_text(alarms[1]), "layers.3.o_proj.dy: 25 % of the data not finite in fp16");
}

TEST(Calibration, of_ranks_takes_the_largest_rescale_of_any) {
  const auto groups = local_groups(2);
  std::vector<std::vector<std::string>> scales(2);
  const auto rank = [&](size_t r) {
    const std::vector<EdgeStatistics> edges = {
        edge("layers.3.down_proj.x", Dtype::e4m3, r == 0 ? 1 : 8, r == 0 ? 0 : 0.1),
        edge("layers.3.q_proj.dy", Dtype::e5m2, r == 0 ? -20 : -14)};
    scales[r] = with_rescales({}, alarms_of(edges, groups[r].get(), AlarmRule::by_window));
  };
  std::thread other([&] { rank(1); });
  rank(0);
  other.join();
  EXPECT_THAT(scales[0], ElementsAre("layers.3.down_proj.x=-7", "layers.3.q_proj.dy=21"));
  EXPECT_EQ(scales[1], scales[0]);
}

TEST(EdgeScales, are_read_from_text_and_the_last_that_matches_counts) {
  for (const char* text : {"", "=1", "a", "a=", "a=x", "a=1.5", "a=65", "a=-65", "a=1 "})
    EXPECT_FALSE(edge_scale_from_text(text)) << text;
  const std::vector<EdgeScale> scales = {edge_scale_from_text("*.x=3").value(),
                                         edge_scale_from_text("layers.1.*=-2").value()};
  EXPECT_EQ(edge_scale(scales, "layers.0.q_proj.x"), 3);
  EXPECT_EQ(edge_scale(scales, "layers.1.q_proj.x"), -2);
  EXPECT_EQ(edge_scale(scales, "layers.0.q_proj.w"), 0);
}

}  // namespace
}  // namespace octet::train_calibration_test
