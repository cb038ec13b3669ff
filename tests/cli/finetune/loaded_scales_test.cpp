// Recipes that predict scales, on weights that are not as models initialize them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "base/philox.h"
#include "cli/finetune/small_model.h"
#include "cli/program_run.h"
#include "io/checkpoint_marker.h"
#include "io/manifest.h"

namespace octet::finetune_loaded_scales_test {
namespace {

using test::metrics;
using test::Outcome;
using test::put_model;
using test::run_program;
using test::ScratchFolder;
using test::small_spec;
using testing::HasSubstr;

constexpr const char* kInitial = " --set recipe.weight_rms=init --set recipe.calibrate=0";

// Matrices of the layers N(0, 1), but those of attention's scores; a few channels between up and
// down 4,096 times as large and as small, which the function does not see.
void grow_loaded(const std::string& name, std::vector<float>& values) {
  constexpr size_t kHidden = 32, kFfn = 40, kEvery = 16;
  constexpr float kTimes = 4096;
  if (name.find("_proj.") == name.npos) return;
  const bool is_score = name.find("q_proj") != name.npos || name.find("k_proj") != name.npos;
  for (float& value : values) value *= is_score ? 1.0f : 6.25f;  // 0.02 x 8 to begin with
  const bool is_up = name.find("up_proj") != name.npos;
  const bool is_down = name.find("down_proj") != name.npos;
  for (size_t i = 0; (is_up || is_down) && i < values.size(); ++i) {
    const size_t channel = is_up ? i / kHidden : i % kFfn;
    if (channel % kEvery == 3) values[i] *= is_up ? kTimes : 1 / kTimes;
  }
}

struct LoadedRun {
  explicit LoadedRun(const test::EditWeights& edit = {}) {
    put_model(folder, small_spec(), "model", edit);
    folder.put("text.txt", test::easy_text(3001));
    folder.put("run.yaml", fmt::format("model: {{path: {0}/model, seq: 24}}\n"
                                       "optim: {{lr: 1.0e-4, warmup: 2, schedule: constant}}\n"
                                       "data: {{train: [{0}/text.txt], val_fraction: 0.1}}\n"
                                       "train: {{steps: 8, batch: 4, eval_every: 2, save_every: 4, "
                                       "eval_bytes: 200, keep: 9}}\n",
                                       folder.path()));
  }
  Outcome train(const std::string& name, const std::string& sets) const {
    return run_program(
        folder, fmt::format("train {} --set out={} {}", folder / "run.yaml", folder / name, sets));
  }
  // Over all steps: a step has 96 tokens.
  double mean_loss(const std::string& name, const std::string& sets) const {
    const Outcome outcome = train(name, sets);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const auto steps = metrics(folder / name);
    double sum = 0;
    for (const auto& step : steps) sum += step.at("loss").get<double>();
    return sum / static_cast<double>(steps.size());
  }
  ScratchFolder folder;
};

class LoadedScales : public testing::TestWithParam<const char*> {};

// The loss of one so small model is mostly a draw: the mean over four.
TEST_P(LoadedScales, fit_weights_that_no_model_begins_with) {
  constexpr uint32_t kModels = 4;
  const std::string recipe = fmt::format("--set train.batch=16 --set recipe={}", GetParam());
  double gap = 0, lost = 0;
  for (uint32_t seed = 1; seed <= kModels; ++seed) {
    const LoadedRun run([seed](const std::string& name, std::vector<float>& values) {
      if (name.find("norm") != name.npos) return;
      RandomStream{.name = name_hash(name), .seed = seed}.normals(values);
      for (float& value : values) value *= 0.16f;
      grow_loaded(name, values);
    });
    const double wide = run.mean_loss("wide", "--set train.batch=16 --set recipe=bf16");
    gap += (run.mean_loss("loaded", recipe) - wide) / kModels;
    if (seed == 1) lost = run.mean_loss("initial", recipe + kInitial) - wide;
  }
  EXPECT_LT(gap, 0.02);
  EXPECT_GT(std::abs(lost), 0.1);
}

TEST_P(LoadedScales, are_the_same_when_the_run_goes_on) {
  const LoadedRun run(grow_loaded);
  const std::string recipe = fmt::format("--set recipe={}", GetParam());
  ASSERT_EQ(run.train("whole", recipe).code, 0);
  ASSERT_EQ(run.train("part", recipe + " --set train.steps=4").code, 0);
  const Outcome rest = run.train("part", recipe + " --resume --set train.steps=8");
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(metrics(run.folder / "part"), metrics(run.folder / "whole"));
}

// Runs begun before have neither key in checkpoint and config.yaml.
TEST_P(LoadedScales, of_a_run_begun_before_stay_what_they_were) {
  const LoadedRun run;
  const std::string recipe = fmt::format("--set recipe={}", GetParam());
  ASSERT_EQ(run.train("whole", recipe + kInitial).code, 0);
  ASSERT_EQ(run.train("part", recipe + kInitial + " --set train.steps=4").code, 0);
  const std::string config = run.folder / "part/config.yaml";
  const auto without = [](std::string text, const std::string& key) {
    const size_t at = text.find(key);
    EXPECT_NE(at, text.npos) << key;
    if (at == text.npos) return text;
    const size_t begin = text.rfind('\n', at), end = text.find('\n', at);
    return text.erase(begin, end - begin);
  };
  run.folder.put("part/config.yaml", without(posix_files().read_text(config), "weight_rms:"));
  const std::string ckpt = run.folder / "part/ckpt/";
  const std::string name = "part/ckpt/" + posix_files().list(ckpt).back().name + "/manifest.json";
  const std::string manifest = run.folder / name;
  Manifest recorded = parse_manifest(posix_files().read_text(manifest), manifest);
  ASSERT_EQ(recorded.config.erase("recipe.weight_rms"), 1u);
  const std::string sealed = parent_path(manifest) + "/COMPLETE";
  Marker marker = read_marker(posix_files(), sealed);
  posix_files().remove(manifest);
  const std::string text = manifest_to_json(recorded);
  marker["manifest.json"] = write_marked(
      posix_files(), manifest, [&](FileWriter& out) { out.write(std::as_bytes(std::span(text))); });
  run.folder.put(name.substr(0, name.rfind('/')) + "/COMPLETE", marker_to_json(marker));
  const Outcome rest = run.train("part", recipe + " --resume --set train.steps=8");
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(metrics(run.folder / "part"), metrics(run.folder / "whole"));
}

double nll_of(const ScratchFolder& folder, const std::string& flags) {
  const Outcome outcome = run_program(folder, "eval --json --seq 24 " + flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.code == 0 ? Json::parse(outcome.out).at(0).at("nll").get<double>() : NAN;
}

// A folder has the scales that its weights' RMS predicts, and others where a text is named.
TEST_P(LoadedScales, are_measured_on_the_text_that_calib_names) {
  const LoadedRun run(test::shift);
  const std::string of_folder =
      fmt::format("--model {0}/model --data {0}/text.txt --max-tokens 960", run.folder.path());
  const std::string recipe = fmt::format("{} --recipe {}", of_folder, GetParam());
  const std::string calib = fmt::format("{} --calib {}/text.txt", recipe, run.folder.path());
  // The same but for scales that are measured in each batch.
  const bool is_coat = std::string(GetParam()) == "coat-static";
  const double current =
      nll_of(run.folder, of_folder + (is_coat ? " --recipe coat" : " --recipe fp8_linear"));
  const double loaded = nll_of(run.folder, recipe), measured = nll_of(run.folder, calib);
  EXPECT_LT(std::abs(measured - current), 0.5 * std::abs(loaded - current))
      << current << " " << loaded << " " << measured;
  EXPECT_EQ(nll_of(run.folder, calib), measured);
  // A run stores what it calibrated: the same where it calibrated on the same rows.
  ASSERT_EQ(run.train("run", fmt::format("--set recipe={} --set train.steps=1", GetParam())).code,
            0);
  const double stored =
      nll_of(run.folder, fmt::format("{} --calib {}/run/config.yaml", recipe, run.folder.path()));
  EXPECT_LT(std::abs(stored - current), 0.5 * std::abs(loaded - current))
      << current << " " << stored;
}

TEST_P(LoadedScales, of_a_run_are_those_of_its_own_evaluations) {
  const LoadedRun run(grow_loaded);
  ASSERT_EQ(run.train("run", fmt::format("--set recipe={}", GetParam())).code, 0);
  const double own = metrics(run.folder / "run").back().at("val_loss").get<double>();
  const std::string flags = fmt::format("--model {}/run --max-tokens 199", run.folder.path());
  EXPECT_NEAR(nll_of(run.folder, flags), own, 2e-6);
  const Outcome generated = run_program(
      run.folder, fmt::format("generate --model {0}/model --recipe {1} --calib {0}/text.txt "
                              "--prompt scale --max-tokens 3 --context 24 --temperature 0",
                              run.folder.path(), GetParam()));
  EXPECT_EQ(generated.code, 0) << generated.err;
}

INSTANTIATE_TEST_SUITE_P(recipes, LoadedScales, testing::Values("scalify_fp8", "coat-static"),
                         [](const auto& info) {
                           return std::string(info.param) == "scalify_fp8" ? "scalify_fp8"
                                                                           : "coat_static";
                         });

std::string eval_nll(const ScratchFolder& folder, const std::string& flags) {
  const Outcome outcome =
      run_program(folder, fmt::format("eval --json --model {}/model --data {}/text.txt --seq 24 {}",
                                      folder.path(), folder.path(), flags));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return Json::parse(outcome.out).at(0).at("nll").dump();
}

TEST(EvalRecipe, takes_overrides_and_refuses_keys_that_say_nothing_to_it) {
  const LoadedRun run;
  const std::string all = eval_nll(run.folder, "--recipe fp8_linear");
  const std::string none = eval_nll(run.folder, "--recipe bf16");
  EXPECT_NE(all, none);
  EXPECT_EQ(eval_nll(run.folder, "--recipe fp8_linear --set recipe.override.*=bf16"), none);
  EXPECT_NE(eval_nll(run.folder, "--recipe fp8_linear --set recipe.scaling=none"), all);
  const Outcome refused = run_program(
      run.folder, fmt::format("eval --model {0}/model --data {0}/text.txt --set train.batch=3",
                              run.folder.path()));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--set: expected one of recipe.override, "));
}

TEST(EvalRecipe, takes_calib_where_scales_are_predicted_alone) {
  const LoadedRun run;
  for (const char* command : {"eval --data {0}/text.txt", "generate --prompt a"}) {
    const Outcome refused = run_program(
        run.folder,
        fmt::format(fmt::runtime(std::string(command) + " --model {0}/model --recipe fp8_linear "
                                                        "--calib {0}/text.txt"),
                    run.folder.path()));
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("--calib: expected a recipe whose scales are predicted"));
  }
}

// Rows that fill up the last batch are in no maximum.
TEST(EvalRecipe, scales_of_a_last_batch_are_those_of_its_own_rows) {
  const LoadedRun run;
  const std::string flags = "--recipe fp8_linear --max-tokens 72 ";
  EXPECT_EQ(eval_nll(run.folder, flags + "--batch 3"), eval_nll(run.folder, flags + "--batch 8"));
}

}  // namespace
}  // namespace octet::finetune_loaded_scales_test
