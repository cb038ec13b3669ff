// kill -9 and --resume, in short; tests/slow/resume goes through every setting.
#include <gtest/gtest.h>

#include "cli/resume/killed_run.h"

namespace octet::resume_test {
namespace {

using test::Settings;

class KilledRun : public testing::TestWithParam<Settings> {};

TEST_P(KilledRun, ends_with_the_bits_of_an_undisturbed_one) {
  int n_kills = 0;  // on a busy machine a run may end before its first kill
  for (uint32_t seed = 3; n_kills == 0 && seed < 9; ++seed) {
    n_kills = test::expect_same_after_kills(GetParam(), {.steps = 16, .kills = 4, .seed = seed});
  }
  EXPECT_GE(n_kills, 1);
}

TEST(KilledRanks, end_with_the_bits_of_undisturbed_ones) {
  int n_kills = 0;
  for (uint32_t seed = 3; n_kills == 0 && seed < 9; ++seed) {
    n_kills = test::expect_same_after_kills({"coat", "e4m3+x", "bf16_remainder"},
                                            {.steps = 16, .kills = 4, .seed = seed, .ranks = 2});
  }
  EXPECT_GE(n_kills, 1);
}

INSTANTIATE_TEST_SUITE_P(settings, KilledRun,
                         testing::Values(Settings{"coat", "e4m3+x", "bf16_remainder"},
                                         Settings{"hif8", "de8_sr", "bf16_sr"},
                                         Settings{"{base: hif8, compute: fp16, scaling: periodic, "
                                                  "loss_scaling: adaptive}",
                                                  "hif8+x", "fp32"},
                                         Settings{"fp32", "f32", "fp32"},
                                         Settings{"bf16", "bf16_sr", "fp32"},
                                         Settings{"bf16", "e4m3", "bf16_remainder", "muon"}),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace octet::resume_test
