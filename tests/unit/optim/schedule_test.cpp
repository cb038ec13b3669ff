#include "optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace octet::optim_schedule_test {
namespace {

constexpr double kTight = 1e-15;

struct Point {
  int64_t step;
  double rate;
};
struct ScheduleCase {
  const char* name;
  Schedule schedule;
  std::vector<Point> points;
};

// lr 1, 10 steps of warm-up, 110 in all: step 60 is half of the part after the warm-up.
Schedule of_110(ScheduleKind kind) {
  return {.kind = kind, .lr = 1, .warmup = 10, .steps = 110, .final_lr = 0.1};
}

const ScheduleCase kCases[] = {
    {"constant",
     of_110(ScheduleKind::constant),
     {{1, 0.1}, {5, 0.5}, {10, 1}, {11, 1}, {60, 1}, {110, 1}, {500, 1}}},
    {"linear",
     of_110(ScheduleKind::linear),
     {{1, 0.1}, {10, 1}, {11, 0.991}, {60, 0.55}, {110, 0.1}, {500, 0.1}}},
    {"cosine",
     of_110(ScheduleKind::cosine),
     {{1, 0.1},
      {10, 1},
      {35, 0.1 + 0.45 * (1 + std::numbers::sqrt2 / 2)},
      {60, 0.55},
      {110, 0.1},
      {500, 0.1}}},
    {"inverse_sqrt",
     of_110(ScheduleKind::inverse_sqrt),
     {{1, 0.1}, {10, 1}, {40, 0.5}, {90, 1.0 / 3}, {1000, std::sqrt(10.0 / 110)}}},
    {"inverse_sqrt_without_warmup",
     {.kind = ScheduleKind::inverse_sqrt, .lr = 2, .steps = 10},
     {{1, 2}, {4, 1}}},
    // A fifth of 110 steps decays: 22, from step 88 on.
    {"wsd",
     of_110(ScheduleKind::wsd),
     {{1, 0.1}, {10, 1}, {60, 1}, {88, 1}, {99, 0.55}, {110, 0.1}, {500, 0.1}}},
    {"wsd_without_decay_steps",
     {.kind = ScheduleKind::wsd, .lr = 2, .steps = 10, .decay_share = 0},
     {{1, 2}, {10, 2}, {11, 2}}},
    // One step behind the last would have 0.
    {"linear_to_zero",
     {.kind = ScheduleKind::linear, .lr = 1, .warmup = 2, .steps = 5, .final_lr = 0},
     {{2, 1}, {3, 0.75}, {5, 0.25}, {6, 0.25}}},
    {"cosine_without_warmup",
     {.kind = ScheduleKind::cosine, .lr = 1, .steps = 5, .final_lr = 0.1},
     {{1, 1}, {3, 0.55}, {5, 0.1}}},
    // The decay takes what the warm-up leaves, not a share of it.
    {"wsd_that_decays_from_the_warmup_on",
     {.kind = ScheduleKind::wsd,
      .lr = 1,
      .warmup = 6,
      .steps = 10,
      .final_lr = 0,
      .decay_share = 0.9},
     {{6, 1}, {7, 0.8}, {10, 0.2}}},
    {"cosine_to_zero_without_warmup",
     {.kind = ScheduleKind::cosine, .lr = 4, .steps = 2, .final_lr = 0},
     {{1, 4}, {2, 2}, {3, 2}}},
    {"one_step", {.kind = ScheduleKind::cosine, .lr = 1, .steps = 1, .final_lr = 0}, {{1, 1}}},
    {"version_1_reaches_zero",
     {.kind = ScheduleKind::cosine, .lr = 4, .steps = 2, .final_lr = 0, .version = 1},
     {{1, 2}, {2, 0}, {3, 0}}},
    {"warmup_fills_the_run",
     {.kind = ScheduleKind::linear, .lr = 1, .warmup = 8, .steps = 4, .final_lr = 0.5},
     {{1, 0.125}, {4, 0.5}, {8, 1}, {9, 0.5}}},
};

class ScheduleTest : public testing::TestWithParam<ScheduleCase> {};

TEST_P(ScheduleTest, has_the_rate_of_its_formula_at_each_point) {
  for (const Point& point : GetParam().points) {
    EXPECT_NEAR(learning_rate(GetParam().schedule, point.step), point.rate, kTight)
        << "step " << point.step;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ScheduleTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(Schedule, never_rises_after_the_warm_up) {
  for (const ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd}) {
    const Schedule schedule = of_110(kind);
    for (int64_t step = schedule.warmup + 1; step <= schedule.steps + 5; ++step) {
      EXPECT_LE(learning_rate(schedule, step), learning_rate(schedule, step - 1));
    }
  }
}

TEST(Schedule, has_no_step_of_rate_zero_where_final_lr_is_zero) {
  for (const ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd}) {
    for (const int64_t warmup : {0, 1, 2, 7}) {
      for (const int64_t steps : {1, 2, 3, 8}) {
        const Schedule schedule{
            .kind = kind, .lr = 1, .warmup = warmup, .steps = steps, .final_lr = 0};
        for (int64_t step = 1; step <= steps; ++step)
          EXPECT_GT(learning_rate(schedule, step), 1e-3) << warmup << " " << steps << " " << step;
      }
    }
  }
}

// With a warm-up and a final rate above 0 both versions are one curve, bit for bit.
TEST(Schedule, of_version_2_keeps_the_rates_of_version_1_between_a_warmup_and_a_final_rate) {
  for (const ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd}) {
    Schedule schedule = of_110(kind), first = schedule;
    first.version = 1;
    for (int64_t step = 1; step <= schedule.steps; ++step)
      EXPECT_EQ(learning_rate(schedule, step), learning_rate(first, step)) << step;
  }
}

struct BadSchedule {
  Schedule schedule;
  const char* message;
};

TEST(Schedule, refuses_what_is_no_schedule_and_says_what_it_expected) {
  const BadSchedule cases[] = {
      {{.steps = 0}, "[schedule] expected at least 1 step, got 0"},
      {{.warmup = -1}, "[schedule] expected warmup of at least 0, got -1"},
      {{.final_lr = 1.5}, "[schedule] expected final_lr within 0 and 1, got 1.5"},
      {{.decay_share = -0.5}, "[schedule] expected decay_share within 0 and 1, got -0.5"},
  };
  for (const BadSchedule& bad : cases) {
    try {
      learning_rate(bad.schedule, 1);
      ADD_FAILURE() << "no error for: " << bad.message;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_STREQ(error.what(), bad.message);
    }
  }
}

}  // namespace
}  // namespace octet::optim_schedule_test
