// Numerics of an evaluation of a run, and which stored answers it takes for its own.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "cli/finetune/small_model.h"
#include "cli/program_run.h"

namespace octet::eval_numerics {
namespace {

using test::easy_text;
using test::metrics;
using test::Outcome;
using test::put_model;
using test::run_program;
using test::ScratchFolder;
using test::small_spec;

double nll_of(const ScratchFolder& folder, const std::string& flags) {
  const Outcome outcome = run_program(folder, "eval --json --seq 24 " + flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.code == 0 ? Json::parse(outcome.out).at(0).at("nll").get<double>() : NAN;
}

// In folder / "run", of a small model: a few steps with this recipe, and with these keys of train.
void train_small(const ScratchFolder& folder, const std::string& recipe, const std::string& keys) {
  put_model(folder, small_spec(), "model");
  folder.put("text.txt", easy_text(3001));
  folder.put("run.yaml", fmt::format("model: {{path: {0}/model, seq: 24}}\n"
                                     "optim: {{lr: 1.0e-4, warmup: 2}}\n"
                                     "data: {{train: [{0}/text.txt], val_fraction: 0.1}}\n"
                                     "train: {{batch: 4, tensorboard: false, {1}}}\n"
                                     "out: {0}/run\n"
                                     "recipe: {2}\n",
                                     folder.path(), keys, recipe));
  const Outcome trained = run_program(folder, "train " + (folder / "run.yaml"));
  ASSERT_EQ(trained.code, 0) << trained.err;
}

// Each with a change that its own evaluations show.
class RunNumerics : public testing::TestWithParam<const char*> {};

TEST_P(RunNumerics, are_those_of_an_evaluation) {
  const ScratchFolder folder;
  ASSERT_NO_FATAL_FAILURE(
      train_small(folder, GetParam(), "steps: 2, save_every: 2, eval_bytes: 200"));
  const double own = metrics(folder / "run").back().at("val_loss").get<double>();
  const std::string flags = fmt::format("--model {}/run --max-tokens 199 --batch 4", folder.path());
  EXPECT_NEAR(nll_of(folder, flags), own, 2e-6);
  EXPECT_GT(std::abs(nll_of(folder, flags + " --recipe fp32") - own), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(keys, RunNumerics,
                         testing::Values("{base: fp8_linear, override: {'*': {x: hif8, w: none}}}",
                                         "{base: fp8_linear, override: {'*.down_proj': bf16}}",
                                         "{base: fp8_linear, override: {lm_head: fp8_linear}}",
                                         "{base: fp8_linear, compute: fp16}",
                                         "{base: fp8_linear, scaling: periodic}",
                                         "{base: mxfp8, mx_scale: floor}",
                                         "{base: coat-static, activation_scale: tensor}"),
                         [](const auto& info) { return fmt::format("number_{}", info.index); });

TEST(EvalRecipe, takes_sets_over_what_the_run_has) {
  const ScratchFolder folder;
  ASSERT_NO_FATAL_FAILURE(
      train_small(folder, "{base: fp8_linear, override: {'*.down_proj': bf16}}", "steps: 2"));
  const std::string flags = fmt::format("--model {}/run --max-tokens 199 ", folder.path());
  const double own = nll_of(folder, flags);
  const double none = nll_of(folder, flags + "--set recipe.override={}");
  EXPECT_NE(own, none);
  EXPECT_EQ(nll_of(folder, flags + "--set 'recipe.override.*.down_proj=fp8_linear'"), none);
  const double both = nll_of(folder, flags + "--set 'recipe.override.*.up_proj=bf16'");
  EXPECT_NE(both, own);
  EXPECT_EQ(nll_of(folder, flags + "--set 'recipe.override={\"*.down_proj\": bf16, "
                                   "\"*.up_proj\": bf16}'"),
            both);
}

// The head's rounding is seen in the loss, in training and behind it.
TEST(EvalRecipe, a_run_with_a_quantized_head_computes_with_it) {
  const ScratchFolder folder;
  ASSERT_NO_FATAL_FAILURE(train_small(
      folder, "{base: fp8_linear, override: {lm_head: {x: hif8, w: hif8, dy: hif8}}}", "steps: 2"));
  const std::string flags = fmt::format("--model {}/run --max-tokens 199 ", folder.path());
  const double own = nll_of(folder, flags),
               none = nll_of(folder, flags + "--set recipe.override={}");
  EXPECT_NE(own, none);
  EXPECT_NEAR(own, none, 0.02);
  EXPECT_NE(nll_of(folder, flags + "--set recipe.override.lm_head=fp8_linear"), own);
}

// Its weights are a model with the recipe's factors alone, which keep their values whatever rows
// are read.
TEST(EvalRecipe, a_run_of_unit_scaling_is_evaluated_with_its_factors_and_not_exported) {
  const ScratchFolder folder;
  const std::string yaml = folder.put("run.yaml", test::tiny_yaml(folder));
  const Outcome trained = run_program(
      folder, fmt::format("train {} --set recipe=unit_scaling --set optim.lr=1 --set optim.clip=0 "
                          "--set train.save_every=6",
                          yaml));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::vector<nlohmann::json> lines = metrics(folder / "run");
  const double own = lines.back().at("val_loss").get<double>();
  EXPECT_LT(own, std::log(256.0) - 0.3);
  const std::string model = fmt::format("--model {}/run ", folder.path());
  EXPECT_NEAR(nll_of(folder, model + "--max-tokens 199 --batch 2"), own, 2e-3);
  const Outcome checked =
      run_program(folder, "eval --check-generation --json --max-tokens 40 " + model);
  EXPECT_EQ(checked.code, 0) << checked.err;
  const auto refused = [&](const std::string& line, const std::string& message) {
    const Outcome outcome = run_program(folder, line);
    EXPECT_NE(outcome.code, 0) << line;
    EXPECT_THAT(outcome.err, testing::HasSubstr(message)) << line;
  };
  refused("eval --max-tokens 99 --recipe bf16 " + model, "expected recipe unit_scaling, which");
  refused(fmt::format("convert {0}/run {0}/out", folder.path()),
          "factors that no model folder has a key for");
  put_model(folder, small_spec(), "model");
  refused(fmt::format("eval --recipe unit_scaling --data {0}/text.txt --model {0}/model",
                      folder.path()),
          "expected another recipe than unit_scaling");
}

struct Answers {
  std::string rows;
  int64_t n_stored = 0;  // lines of the file of requests
};

Answers answers(const ScratchFolder& folder, const std::string& flags, const std::string& file) {
  const Outcome outcome = run_program(
      folder, fmt::format("eval --json --model {0}/model --tasks lambada --task-data {0} "
                          "--requests {0}/{1} {2}",
                          folder.path(), file, flags));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string stored = posix_files().read_text(folder / file);
  return {outcome.out, std::count(stored.begin(), stored.end(), '\n')};
}

TEST(EvalRequests, are_answers_of_the_same_numerics) {
  const ScratchFolder folder;
  put_model(folder, small_spec(), "model", test::shift);
  folder.put("text.txt", easy_text(3001));
  folder.put("lambada/lambada_test.jsonl",
             "{\"text\": \"a scale of a tensor\"}\n{\"text\": \"the largest of a row\"}\n");
  const std::string calib = fmt::format("--calib {}/text.txt", folder.path());
  const std::vector<std::string> numerics = {"--recipe scalify_fp8",
                                             "--recipe scalify_fp8 " + calib,
                                             "--recipe fp8_linear",
                                             "--recipe fp8_linear --set 'recipe.override.*=bf16'",
                                             "--recipe fp8_linear --set recipe.scaling=none",
                                             "--recipe fp8_linear --batch 1",
                                             "--recipe fp8_linear --seq 16"};
  int64_t n = 0;
  for (const std::string& flags : numerics) {
    const Answers alone = answers(folder, flags, fmt::format("alone-{}.jsonl", n));
    const Answers shared = answers(folder, flags, "requests.jsonl");
    EXPECT_EQ(shared.rows, alone.rows) << flags;
    EXPECT_EQ(shared.n_stored, n + 2) << flags;
    EXPECT_EQ(answers(folder, flags, "requests.jsonl").n_stored, n + 2) << flags;
    n += 2;
  }
}

}  // namespace
}  // namespace octet::eval_numerics
