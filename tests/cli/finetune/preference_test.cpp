// Training on pairs of a chosen and a rejected answer, on tiny models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli/finetune/small_model.h"
#include "data/preference_rows.h"
#include "unit/base/error_of.h"

namespace octet::finetune_preference_test {
namespace {

using test::error_of;
using test::Fixture;
using test::ScratchFolder;
using test::Tuner;
using testing::HasSubstr;

// The answer in capitals was preferred.
std::string put_pairs(const ScratchFolder& folder, int n) {
  std::string lines;
  for (int i = 0; i < n; ++i) {
    const std::string small(static_cast<size_t>(1 + i * 7 % 5), static_cast<char>('a' + i % 5));
    std::string large = small;
    for (char& ch : large) ch = static_cast<char>(ch - 'a' + 'A');
    lines += "{\"prompt\": \"" + small + "\", \"chosen\": \"" + large + "\", \"rejected\": \"" +
             small + "\"}\n";
  }
  return folder.put("pairs.jsonl", lines);
}

std::vector<std::string> pair_sets(std::vector<std::string> sets) {
  sets.insert(sets.begin(), {"train.steps=6", "optim.lr=0.01", "train.export=none",
                             "optim.warmup_share=0", "train.batch=8", "model.seq=32"});
  return sets;
}

struct PairFixture : Fixture {
  explicit PairFixture(ModelKind kind = ModelKind::llama) : Fixture(kind) {
    options.data = {put_pairs(folder, 60)};
  }
};

double figure(const RunEvaluation& all, Tuner& run, std::string_view name) {
  for (const auto& [key, value] : all.figures(run.trainer.engine().losses())) {
    if (key == name) return value;
  }
  ADD_FAILURE() << name;
  return NAN;
}

RunEvaluation evaluated(Tuner& run) {
  return run.trainer.engine().evaluate(*make_eval_rows(run.data, run.config(), run.trainer.spec()));
}

class Preferences : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Preferences, begin_at_their_start_and_are_learned) {
  PairFixture f;
  Tuner run(f.options, pair_sets(GetParam()));
  const double before = run.trainer.evaluate().value();
  const RunEvaluation first = evaluated(run);
  const bool has_reference = !run.data.references.empty();
  if (has_reference) {
    const bool is_dpo =
        run.trainer.engine().losses().size() == 1 && GetParam()[0] == "train.loss=dpo";
    if (is_dpo) EXPECT_NEAR(before, std::log(2.0), 1e-5);
    EXPECT_NEAR(figure(first, run, "margin"), 0, 1e-5);
  }
  for (int i = 0; i < 30; ++i) run.trainer.step();
  const RunEvaluation last = evaluated(run);
  EXPECT_LT(run.trainer.evaluate().value(), before);
  EXPECT_GT(figure(last, run, "accuracy"), 0.9);
  EXPECT_GT(figure(last, run, "margin"), figure(first, run, "margin"));
  EXPECT_NEAR(figure(last, run, "reward_chosen") - figure(last, run, "reward_rejected"),
              figure(last, run, "margin"), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    losses_and_recipes, Preferences,
    testing::Values(
        std::vector<std::string>{"train.loss=dpo", "recipe=fp32"},
        std::vector<std::string>{"train.loss=dpo", "recipe=coat"},
        std::vector<std::string>{"train.loss=dpo", "recipe=fp8_block"},
        std::vector<std::string>{"train.loss=dpo", "recipe=bf16", "lora.rank=4", "lora.base=e4m3"},
        std::vector<std::string>{"train.loss=ipo", "recipe=bf16", "train.pairwise_beta=1"},
        std::vector<std::string>{"train.loss=simpo", "recipe=bf16", "train.pairwise_beta=2"},
        std::vector<std::string>{"train.loss=orpo", "recipe=coat-fast"}),
    [](const auto& info) { return "case_" + std::to_string(info.index); });

TEST(PreferenceRun, does_not_depend_on_how_its_rows_are_cut) {
  const auto losses = [](const std::vector<std::string>& more) {
    PairFixture f;
    std::vector<std::string> sets = pair_sets({"train.loss=dpo", "recipe=fp32"});
    sets.insert(sets.end(), more.begin(), more.end());
    Tuner run(f.options, sets);
    std::vector<double> all;
    for (int i = 0; i < 4; ++i) all.push_back(static_cast<double>(run.trainer.step().loss));
    return all;
  };
  const std::vector<double> whole = losses({});
  const std::vector<double> cut = losses({"train.batch=4", "train.accumulate=2"});
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(cut[i], whole[i], 1e-5);
}

TEST(PreferenceRun, goes_on_bit_for_bit_with_the_stored_reference) {
  PairFixture f;
  test::expect_parts_are_the_whole(f, pair_sets({"train.loss=dpo", "recipe=coat"}));
  EXPECT_EQ(posix_files().read_bytes(f.folder / "parts/reference.safetensors"),
            posix_files().read_bytes(f.folder / "whole/reference.safetensors"));
  for (const char* key : {"accuracy", "margin", "reward_chosen", "reward_rejected"})
    EXPECT_TRUE(test::metrics(f.folder / "whole").back().dump().find(key) != std::string::npos)
        << key;
}

TEST(PreferenceRun, of_other_keys_is_refused) {
  PairFixture f;
  EXPECT_THAT(error_of([&] {
                Tuner(f.options, pair_sets({"train.loss=dpo", "data.pack=true"}));
              }),
              HasSubstr("data.pack"));
  EXPECT_THAT(error_of([&] { Tuner(f.options, pair_sets({})); }),
              HasSubstr("train.loss dpo, ipo, simpo or orpo"));
  f.options.data = {test::put_talks(f.folder, 9)};
  EXPECT_THAT(error_of([&] { Tuner(f.options, pair_sets({"train.loss=dpo"})); }),
              HasSubstr("no 'chosen' and 'rejected'"));
}

}  // namespace
}  // namespace octet::finetune_preference_test
