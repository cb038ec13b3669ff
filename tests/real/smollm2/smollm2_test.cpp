// Recipes whose scales are predicted, on SmolLM2-135M-Instruct (`./dev model smollm2`): a model as
// people have them, with an attention sink of 3,000 times the RMS. Skips where the model or its
// text is not there. Minutes to hours on a CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "cli/program_run.h"
#include "cli/train/tiny_run.h"

namespace octet::smollm2_test {
namespace {

using test::metrics;
using test::Outcome;
using test::run_program;
using test::ScratchFolder;

const std::string kModel = parent_path(OCTET_PROGRAM) + "/models/smollm2";
constexpr const char* kText = OCTET_TEST_DATA "/data/text/wikitext2/wiki.test.raw";

class Smollm2 : public testing::Test {
 protected:
  void SetUp() override {
    if (!posix_files().exists(kModel + "/model.safetensors"))
      GTEST_SKIP() << kModel << " is not there (./dev model smollm2)";
    if (!posix_files().exists(kText)) GTEST_SKIP() << kText << " is not there";
  }

  double nll(const std::string& flags) {
    const Outcome outcome = run_program(
        folder_, fmt::format("eval --json --model {} --data {} --max-tokens 2048 --seq 1024 "
                             "--batch 2 {}",
                             kModel, kText, flags));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? Json::parse(outcome.out).at(0).at("nll").get<double>() : NAN;
  }

  // Mean loss of the last 50 of 200 steps.
  double trained(const std::string& recipe) {
    const std::string out = folder_ / recipe;
    const Outcome outcome = run_program(
        folder_,
        fmt::format("train --model {} --data {} --recipe {} --out {} --set model.seq=64 --set "
                    "train.batch=4 --set train.steps=200 --set train.eval_every=0 --set "
                    "train.save_every=0 --set optim.lr=2e-5 --set optim.warmup=20",
                    kModel, kText, recipe, out));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    double sum = 0;
    const auto lines = metrics(out);
    EXPECT_EQ(lines.size(), 200u);
    for (size_t i = 150; i < lines.size(); ++i) sum += lines[i].at("loss").get<double>();
    return sum / 50;
  }

  ScratchFolder folder_;
};

TEST_F(Smollm2, is_evaluated_with_scales_that_its_weights_predict) {
  const double exact = nll("--recipe fp32");
  for (const char* recipe : {"fp8_linear", "scalify_fp8", "coat-static"}) {
    const double loaded = nll(fmt::format("--recipe {}", recipe));
    std::printf("[ real     ] %s %+.4f nats above fp32\n", recipe, loaded - exact);
    EXPECT_LT(std::abs(loaded - exact), 0.07) << recipe;
  }
  const std::string calib = fmt::format(" --calib {}", kText);
  const double measured = nll("--recipe coat-static" + calib);
  std::printf("[ real     ] coat-static --calib %+.4f nats above fp32\n", measured - exact);
  EXPECT_LT(std::abs(measured - exact), 0.07);
}

// So few tokens at so low a rate learn little of what E4M3's rounding costs away: on an H100
// fp8_linear is 0.026 above bf16, and static scales 0.004 to 0.006 above fp8_linear.
TEST_F(Smollm2, is_trained_with_static_scales_as_with_measured_ones) {
  const double measured = trained("fp8_linear");
  for (const char* recipe : {"scalify_fp8", "coat-static"}) {
    const double loss = trained(recipe);
    std::printf("[ real     ] %s %+.4f nats above fp8_linear after 200 steps\n", recipe,
                loss - measured);
    EXPECT_LT(loss, measured + 0.02) << recipe;
  }
}

}  // namespace
}  // namespace octet::smollm2_test
