// `octet doctor --prove`, on the CPU: a line a kernel of the plan, or one line that says why not.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/program_run.h"

namespace octet::test::program_prove_test {
namespace {

const std::string kConfig = OCTET_SOURCE_DIR "/recipes/llama-3m.yaml";

// Kernels of the lines "0 layer role module | kernel | results <- operands | bytes".
std::set<std::string> kernels_of(const std::string& steps) {
  std::set<std::string> kernels;
  std::istringstream lines(steps);
  for (std::string line; std::getline(lines, line);) {
    const size_t from = line.find(" | "), to = line.find(" | ", from + 3);
    if (to != std::string::npos && line.find(" step ") != 0)
      kernels.insert(line.substr(from + 3, to - from - 3));
  }
  return kernels;
}

// With periodic scales there are two kinds of steps.
class Prove : public testing::TestWithParam<const char*> {};

TEST_P(Prove, finds_every_kernel_of_the_plan_right) {
  const ScratchFolder folder;
  const std::string run = kConfig + " --set " + GetParam();
  const Outcome proof = run_program(folder, "doctor --prove " + run + " --json");
  ASSERT_EQ(proof.code, 0) << proof.err;
  std::set<std::string> proved;
  for (const auto& line : nlohmann::json::parse(proof.out)) {
    EXPECT_EQ(line.at("proved"), "yes") << line;
    proved.insert(line.at("kernel").get<std::string>());
  }
  const auto planned = kernels_of(run_program(folder, "plan " + run + " --steps").out);
  EXPECT_GE(planned.size(), 18u);
  for (const std::string& kernel : planned) EXPECT_TRUE(proved.contains(kernel)) << kernel;
}
INSTANTIATE_TEST_SUITE_P(
    runs, Prove,
    testing::Values("recipe=coat", "recipe=fp8_linear --set recipe.scaling=periodic",
                    "model.kind=roberta --set model.head=classes",
                    "model.kind=bert --set model.head=span",
                    "model.kind=bert --set model.head=embeddings",
                    "model.kind=bert --set model.head=classes --set recipe=fp32",
                    "model.kind=distilbert --set recipe=fp32",
                    "model.kind=qwen3_5_text --set recipe=fp32", "model.kind=opt --set recipe=fp32",
                    "model.kind=gemma4_text --set model.sliding_window=64 --set model.layers=6 "
                    "--set model.window_layers=[1,0,1,0,1,0] --set model.shared_kv_layers=2 "
                    "--set model.wide_shared_mlp=true --set model.layer_input=16 --set recipe=fp32",
                    "model.kind=vit --set model.image_size=32 "
                    "--set model.patch_size=8 --set recipe=fp32",
                    "model.kind=vit --set model.image_size=32 "
                    "--set model.patch_size=8 --set recipe=coat"));

TEST(ProveErrors, refuses_a_run_that_it_cannot_read) {
  const ScratchFolder folder;
  const auto code = [&](const std::string& rest) {
    return run_program(folder, "doctor --prove " + rest).code;
  };
  EXPECT_EQ(code("/nowhere.yaml"), run_program(folder, "plan /nowhere.yaml").code);
  EXPECT_EQ(code(kConfig + " --ranks 2"), 2);
  EXPECT_EQ(code(kConfig + " --set recipe=fp4"), 2);
}

}  // namespace
}  // namespace octet::test::program_prove_test
