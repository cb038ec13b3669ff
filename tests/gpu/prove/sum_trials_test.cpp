// Algorithms of the library are kept where they add as the card does, and only there.
#include <gtest/gtest.h>

#include "backends/cuda/params/gemm.h"
#include "gpu/parity/gpu.h"
#include "gpu/prove/faults.h"

namespace octet::sum_trials_test {
namespace {

using cuda::GemmParams;

enum Way : int { rule, bias_fused, in_halves };

struct TrialCase {
  const char* name;
  GemmParams params;
  bool alpha_on_device = false;
};

// Weight gradients of few outputs, and layers whose bias nearly takes their sum back.
const TrialCase kCases[] = {{"bf16", {.m = 16, .n = 27, .k = 2048, .trans_a = true}},
                            {"bf16_bias_alpha_on_device",
                             {.m = 34, .n = 128, .k = 128, .trans_a = true, .has_bias = true},
                             true},
                            {"e4m3_fast_bias",
                             {.m = 32,
                              .n = 128,
                              .k = 128,
                              .a = Dtype::e4m3,
                              .b = Dtype::e4m3,
                              .trans_a = true,
                              .has_bias = true,
                              .fast_accumulate = true,
                              .has_scale_a = true,
                              .has_scale_b = true,
                              .kind = cuda::GemmKind::fp8}},
                            {"e5m2_promoted",
                             {.m = 16,
                              .n = 16,
                              .k = 1000,
                              .a = Dtype::e5m2,
                              .b = Dtype::e4m3,
                              .trans_a = true,
                              .has_scale_a = true,
                              .has_scale_b = true,
                              .kind = cuda::GemmKind::fp8}}};

TEST(SumTrials, keep_algorithms_that_add_as_the_card_does_and_no_others) {
  OCTET_GPU_OR_SKIP(gpu);
  if (!is_emulated()) GTEST_SKIP() << "algorithms of the library cannot be chosen to be wrong";
  const auto hold = emulated<bool(const GemmParams*, bool, int)>("octet_emulated_sums_hold");
  for (const TrialCase& c : kCases) {
    SCOPED_TRACE(c.name);
    EXPECT_TRUE(hold(&c.params, c.alpha_on_device, rule));
    EXPECT_FALSE(hold(&c.params, c.alpha_on_device, in_halves));
    if (c.params.has_bias) EXPECT_FALSE(hold(&c.params, c.alpha_on_device, bias_fused));
  }
}

}  // namespace
}  // namespace octet::sum_trials_test
