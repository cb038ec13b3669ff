// Every recipe with every format of the moments and every master: kill -9 and --resume leave the
// bits of a run that was let alone.
#include <gtest/gtest.h>

#include "cli/resume/killed_run.h"

namespace octet::resume_test {
namespace {

using test::Settings;

TEST(KilledRuns, every_setting_survives_a_kill) {
  uint32_t seed = 0;
  int n_kills = 0;
  const std::vector<Settings> all = test::all_settings();
  for (const Settings& settings : all) {
    n_kills += test::expect_same_after_kills(settings, {.steps = 4, .kills = 1, .seed = ++seed});
  }
  RecordProperty("settings", static_cast<int>(all.size()));
  RecordProperty("kills", n_kills);
  EXPECT_GT(n_kills, static_cast<int>(all.size()) / 2);
}

class KilledOften : public testing::TestWithParam<Settings> {};

TEST_P(KilledOften, survives_twenty_kills) {
  const int n_kills =
      test::expect_same_after_kills(GetParam(), {.steps = 60, .kills = 20, .seed = 20});
  EXPECT_GE(n_kills, 10);
}

TEST(KilledOften, two_and_three_ranks_survive_twenty_kills) {
  for (const int ranks : {2, 3}) {
    const int n_kills =
        test::expect_same_after_kills({"coat", "e4m3+x", "bf16_remainder"},
                                      {.steps = 60, .kills = 20, .seed = 21, .ranks = ranks});
    EXPECT_GE(n_kills, 10);
  }
}

// Other events that may befall a run, each often.
class Disturbed : public testing::TestWithParam<Settings> {
 protected:
  void expect_same(test::Disturbance how, uint32_t n) {
    const int n_met = test::expect_same_after_kills(
        GetParam(), {.steps = 60, .kills = n, .seed = 7, .disturbance = how});
    RecordProperty("met", n_met);
    EXPECT_GE(n_met, static_cast<int>(n / 2));
  }
};

TEST_P(Disturbed, survives_twenty_signals) {
  expect_same(test::Disturbance::signal, 20);
}

TEST_P(Disturbed, survives_ten_rivals) {
  expect_same(test::Disturbance::rival, 10);
}

TEST_P(Disturbed, survives_a_disk_that_is_full_ten_times) {
  if (!test::can_mount()) GTEST_SKIP() << "needs the right to mount a file system";
  expect_same(test::Disturbance::full_disk, 10);
}

INSTANTIATE_TEST_SUITE_P(settings, Disturbed,
                         testing::Values(Settings{"coat", "e4m3+x", "bf16_remainder"},
                                         Settings{"bf16", "f32", "fp32"}),
                         [](const auto& info) { return info.param.name(); });

TEST(KilledRules, survive_kills) {
  for (const Settings& settings : test::settings_of_rules()) {
    for (const int ranks : {1, 2}) {
      const int n_kills = test::expect_same_after_kills(
          settings, {.steps = 20, .kills = 6, .seed = 22, .ranks = ranks});
      EXPECT_GE(n_kills, 2) << settings.name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(settings, KilledOften, testing::ValuesIn(test::some_settings()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace octet::resume_test
