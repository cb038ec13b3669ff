// Runs whose documents do not see each other, and runs with a sliding window, beside the CPU's.
#include <gtest/gtest.h>

#include <cmath>

#include "gpu/training/program_run.h"

namespace octet::training_documents_test {
namespace {

using test::ScratchFolder;
using test::train;

// Documents of 3 to 182 bytes.
std::string documents_in(const ScratchFolder& folder) {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += test::easy_text(static_cast<size_t>(3 + i * 37 % 180)) + "##";
  }
  return "--set 'data.train=[" + folder.put("docs.txt", text) +
         "]' --set \"data.document_separator='##'\" ";
}

struct RunCase {
  const char* name;
  const char* sets;
};
class ApartRun : public testing::TestWithParam<RunCase> {};

// The first steps; later ones differ by what the first ones rounded.
TEST_P(ApartRun, has_the_losses_of_the_cpu) {
  OCTET_GPU_PROGRAM_OR_SKIP();
  const ScratchFolder folder;
  struct Recipe {
    const char* name;
    double tolerance;
  };
  for (const Recipe& recipe : {Recipe{"fp32", 1e-4}, Recipe{"bf16", 2e-2}}) {
    const std::string set =
        documents_in(folder) + "--set recipe.base=" + recipe.name + " " + GetParam().sets;
    const std::string gpu_run = std::string("gpu-") + recipe.name;
    const std::string cpu_run = std::string("cpu-") + recipe.name;
    train(folder, gpu_run, set);
    train(folder, cpu_run, set, "cpu");
    const auto got = test::metrics(folder / gpu_run), want = test::metrics(folder / cpu_run);
    ASSERT_EQ(got.size(), 6u);
    ASSERT_EQ(want.size(), 6u);
    for (size_t i = 0; i < want.size(); ++i) {
      const double expected = want[i].at("loss").get<double>();
      EXPECT_NEAR(got[i].at("loss").get<double>(), expected, recipe.tolerance * expected) << i;
      EXPECT_EQ(got[i].at("tokens"), want[i].at("tokens")) << i;
    }
  }
}

TEST_P(ApartRun, goes_on_from_a_checkpoint_with_the_same_bits) {
  OCTET_GPU_PROGRAM_OR_SKIP();
  const ScratchFolder folder;
  const std::string set =
      documents_in(folder) + "--set train.deterministic=true " + GetParam().sets;
  train(folder, "first", set);
  train(folder, "resumed", set);
  ASSERT_GT(std::filesystem::remove_all((folder / "resumed") + "/ckpt/step-000006"), 0u);
  train(folder, "resumed", set + " --resume");
  const auto first = test::metrics(folder / "first");
  ASSERT_EQ(first.size(), 6u);
  EXPECT_LT(first[5].at("loss").get<double>(), first[0].at("loss").get<double>());
  EXPECT_EQ(test::metrics(folder / "resumed"), first);
}

INSTANTIATE_TEST_SUITE_P(
    runs, ApartRun,
    testing::Values(RunCase{"isolated", "--set data.document_boundaries=isolate"},
                    RunCase{"packed", "--set data.pack=true"},
                    RunCase{"window", "--set model.kind=mistral --set model.sliding_window=48"},
                    RunCase{"packed_window",
                            "--set data.pack=true --set model.kind=mistral "
                            "--set model.sliding_window=48"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace octet::training_documents_test
