// The program on the GPU: with train.deterministic two runs have the same bits, and so has one that
// was resumed; without it a resumed run takes the recorded algorithms.
#include <gtest/gtest.h>

#include <algorithm>

#include "gpu/training/program_run.h"

namespace octet::training_resume_test {
namespace {

using test::ScratchFolder;
using test::train;

// A copy of a whole run as it was after step 3.
void copy_from_step_3(const ScratchFolder& folder, const std::string& from, const std::string& to) {
  std::filesystem::copy(folder / from, folder / to, std::filesystem::copy_options::recursive);
  ASSERT_GT(std::filesystem::remove_all((folder / to) + "/ckpt/step-000006"), 0u);
}

class DeterministicRun : public testing::TestWithParam<const char*> {};

TEST_P(DeterministicRun, has_the_same_bits_again_and_after_a_resume) {
  OCTET_GPU_PROGRAM_OR_SKIP();
  const ScratchFolder folder;
  const std::string set =
      std::string("--set train.deterministic=true --set recipe.base=") + GetParam();
  train(folder, "first", set);
  train(folder, "again", set);
  copy_from_step_3(folder, "first", "resumed");
  train(folder, "resumed", set + " --resume");
  const auto first = test::metrics(folder / "first");
  ASSERT_EQ(first.size(), 6u);
  EXPECT_LT(first[5].at("loss").get<double>(), first[0].at("loss").get<double>());
  EXPECT_EQ(test::metrics(folder / "again"), first);
  EXPECT_EQ(test::metrics(folder / "resumed"), first);
}

INSTANTIATE_TEST_SUITE_P(recipes, DeterministicRun,
                         testing::Values("fp32", "bf16", "fp8_linear", "coat", "coat-fast", "hif8"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(ResumedRun, takes_the_algorithms_that_were_recorded) {
  OCTET_GPU_PROGRAM_OR_SKIP();
  const ScratchFolder folder;
  train(folder, "first", "");
  copy_from_step_3(folder, "first", "resumed");
  train(folder, "resumed", "--resume");
  const std::string recorded = posix_files().read_text(folder / "first/algorithms.json");
  EXPECT_GE(nlohmann::json::parse(recorded).at("algorithms").size(), 5u);
  EXPECT_EQ(posix_files().read_text(folder / "resumed/algorithms.json"), recorded);
}

}  // namespace
}  // namespace octet::training_resume_test
