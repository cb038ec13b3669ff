// Keys of its configuration that a resumed run may change.
#include "config/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "config/load.h"
#include "unit/base/error_of.h"

namespace octet::config_record_test {
namespace {

using test::error_of;

LoadedConfig loaded(const std::vector<std::string>& sets) {
  return parse_config("data: {train: [a.txt]}\nrecipe: coat\ntrain: {batch: 2, accumulate: 6}\n",
                      "a.yaml", sets);
}

std::string error_with(const std::string& key, const std::string& value, bool is_named) {
  LoadedConfig after = loaded({key + "=" + value});
  if (!is_named) after.source[key] = "a.yaml:3";
  return error_of([&] {
    check_changes(config_changes(loaded({}).config, after.config), after.config, after.source);
  });
}

TEST(ConfigRecord, comes_back_as_it_was_and_holds_no_path) {
  const LoadedConfig run = loaded({"optim.lr=0.1", "recipe.override={\"layers.0.*\": bf16}",
                                   "optim.betas=[0.8, 0.99]", "model.norm_eps=1e-7"});
  const ConfigRecord record = config_record(run.config);
  for (const char* key : {"out", "data.train", "data.tokenizer", "model.path", "train.keep"}) {
    EXPECT_FALSE(record.contains(key)) << key;
  }
  const RunConfig back = recorded_config(record, loaded({}).config, "m.json");
  EXPECT_EQ(back, run.config);
  EXPECT_NE(record, config_record(loaded({}).config));
}

TEST(ConfigRecord, keys_of_later_versions_are_left_out_and_wrong_values_named) {
  const RunConfig base = loaded({}).config;
  EXPECT_EQ(recorded_config({{"model.expert_count", "8"}}, base, "m.json"), base);
  EXPECT_EQ(error_of([&] {
              recorded_config({{"optim.lr", "fast"}}, base, "m.json");
            }),
            "m.json: optim.lr: expected a number in (0, 1000], got 'fast'");
  EXPECT_THAT(error_of([&] {
                recorded_config({{"optim.betas", "[1, "}}, base, "m.json");
              }),
              testing::StartsWith("m.json: optim.betas: expected a value, got a syntax error"));
}

TEST(ConfigChanges, of_what_the_model_is_are_refused_even_by_name) {
  EXPECT_EQ(error_with("model.tied", "true", true),
            "[resume] model.tied: expected false as in the checkpoint, got true");
  EXPECT_EQ(error_with("recipe.base", "bf16", true),
            "[resume] recipe.base: expected coat as in the checkpoint, got bf16");
}

TEST(ConfigChanges, of_the_optimizer_must_be_named) {
  EXPECT_EQ(error_with("optim.betas", "[0.8, 0.95]", false),
            "[resume] optim.betas: expected [0.9, 0.95] as in the checkpoint, got [0.8, 0.95] "
            "(--set optim.betas=[0.8, 0.95] changes it)");
  EXPECT_EQ(error_with("optim.betas", "[0.8, 0.95]", true), "no error");
  EXPECT_EQ(error_with("train.keep", "7", false), "no error");
}

TEST(ConfigChanges, of_the_batch_keep_its_product_with_accumulate) {
  const auto error_of_pair = [](const std::vector<std::string>& sets) {
    const LoadedConfig after = loaded(sets);
    return error_of(
        [&] { check_changes(config_changes(loaded({}).config, after.config), after.config, {}); });
  };
  EXPECT_EQ(error_of_pair({"train.batch=3", "train.accumulate=4"}), "no error");
  EXPECT_EQ(error_of_pair({"train.batch=12", "train.accumulate=1"}), "no error");
  EXPECT_EQ(error_of_pair({"train.accumulate=3"}),
            "[resume] train.accumulate: expected batch x accumulate = 2 x 6 as in the checkpoint, "
            "or others of this product, got 2 x 3");
}

// A rule that nobody chose on purpose would show here: each stands with keys that must have it.
TEST(ConfigChanges, every_key_has_the_rule_of_its_kind) {
  for (const ConfigRow& row : config_rows()) {
    const bool is_of_states = row.path == "optim.state_m" || row.path == "optim.state_v" ||
                              row.path == "optim.group" || row.path == "optim.f32_below" ||
                              row.path == "optim.master" || row.path == "optim.kind" ||
                              row.path == "optim.rules";
    const bool is_of_folder = row.path == "model.path" || row.path == "model.allow_nonfinite";
    if (row.path.starts_with("model.") && !is_of_folder) {
      EXPECT_EQ(row.on_resume, OnResume::same) << row.path;
    }
    if (row.path.starts_with("optim.")) {
      EXPECT_EQ(row.on_resume, is_of_states ? OnResume::same : OnResume::named) << row.path;
    }
  }
}

}  // namespace
}  // namespace octet::config_record_test
