// Every recipe with every format of the moments and every master: kill -9 and --resume leave the
// bits of a run that was let alone.
#include <gtest/gtest.h>

#include "cli/resume/killed_run.h"

namespace octet {
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

INSTANTIATE_TEST_SUITE_P(settings, KilledOften, testing::ValuesIn(test::some_settings()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace octet
