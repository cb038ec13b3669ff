// recipe.tf32 reaches the products: other bits than f32, and nearly the same loss.
#include <gtest/gtest.h>

#include <cmath>

#include "gpu/training/program_run.h"

namespace octet::training_tf32_test {
namespace {

TEST(Tf32Run, differs_from_f32_in_the_last_digits_alone) {
  OCTET_GPU_PROGRAM_OR_SKIP();
  const test::ScratchFolder folder;
  const std::string set = "--set recipe.base=fp32 --set train.deterministic=true";
  test::train(folder, "f32", set);
  test::train(folder, "tf32", set + " --set recipe.tf32=true");
  const auto f32 = test::metrics(folder / "f32"), tf32 = test::metrics(folder / "tf32");
  ASSERT_EQ(tf32.size(), f32.size());
  for (size_t i = 0; i < f32.size(); ++i) {
    const double want = f32[i].at("loss").get<double>(), got = tf32[i].at("loss").get<double>();
    EXPECT_NE(got, want) << i;
    EXPECT_NEAR(got, want, 2e-3 * std::abs(want)) << i;  // factors are exact to 2^-11
  }
}

}  // namespace
}  // namespace octet::training_tf32_test
