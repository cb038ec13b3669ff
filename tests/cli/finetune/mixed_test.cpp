// Parts of a run: heads that are stored beside a tie, positions, adapters' targets, and data of
// several kinds and weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/json.h"
#include "base/log.h"
#include "cli/finetune/small_model.h"
#include "config/report.h"
#include "infer/evaluate.h"
#include "infer/model_source.h"
#include "infer/model_spec.h"
#include "io/manifest.h"
#include "passes/lora.h"
#include "train/open_run.h"
#include "unit/base/error_of.h"

namespace octet::finetune_mixed_test {
namespace {

using test::error_of;
using test::Fixture;
using test::put_model;
using test::small_spec;
using test::Tuner;
using test::Tuning;
using testing::HasSubstr;

// A folder whose config.json ties the head, and whose files hold one.
std::string put_tied(const test::ScratchFolder& folder, const std::string& name, ModelKind kind,
                     const test::EditWeights& edit) {
  ModelSpec spec = small_spec(kind);
  spec.tied = false;
  const std::string model = put_model(folder, spec, name, edit);
  spec.tied = true;
  folder.put(name + "/config.json", hf_config_text(spec));
  return model;
}

class StoredHeads : public testing::TestWithParam<ModelKind> {};

TEST_P(StoredHeads, are_tied_only_where_they_equal_the_embedding) {
  const test::ScratchFolder folder;
  std::vector<float> embedding;
  const std::string head(model_def(GetParam()).head);
  const auto tie = [&](const std::string& name, std::vector<float>& values) {
    if (embedding.empty()) embedding = values;
    if (name == head) values = embedding;
  };
  const Files& files = posix_files();
  EXPECT_TRUE(read_folder_spec(files, put_tied(folder, "equal", GetParam(), tie)).tied);
  const auto differ = [&](const std::string& name, std::vector<float>& values) {
    tie(name, values);
    if (name == head) values.back() += 1;
  };
  const std::string other = put_tied(folder, "other", GetParam(), differ);
  EXPECT_FALSE(read_folder_spec(files, other).tied);
  std::vector<std::string> warnings;
  const Log log([&](LogLevel level, const std::string& line) {
    if (level == LogLevel::warning) warnings.push_back(line);
  });
  EXPECT_FALSE(find_model_source(posix_files(), other, log).spec.tied);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("tie_word_embeddings is true, but the head that is stored"));
}
INSTANTIATE_TEST_SUITE_P(kinds, StoredHeads,
                         testing::Values(ModelKind::llama, ModelKind::gpt2, ModelKind::gpt_neox));

TEST(StoredHead, of_its_own_is_trained_and_exported) {
  Fixture f;
  f.options.model = put_tied(f.folder, "tied", ModelKind::llama, {});
  Tuner tuner(f.options, {"train.steps=2", "optim.lr=0.01"});
  tuner.trainer.run({StartMode::fresh, tuner.loaded.source}, {});
  for (const char* name : {"/config.json", "/export/config.json"}) {
    const std::string path = f.options.out + name;
    EXPECT_EQ(parse_json(posix_files().read_text(path), path)["tie_word_embeddings"], false);
  }
  const ModelSource run = find_model_source(posix_files(), f.options.out);
  EXPECT_FALSE(run.spec.tied);
  const WeightReader before(posix_files(), f.options.model, run.spec);
  const WeightReader after(posix_files(), f.options.out + "/export", run.spec);
  EXPECT_NE(after.read("lm_head.weight"), before.read("lm_head.weight"));
}

TEST(Positions, beyond_those_of_the_model_are_refused_by_name) {
  Fixture f;
  const auto open = [&](const std::string& seq, bool resumes) {
    LoadedConfig loaded = finetune_config(posix_files(), f.options, {"model.seq=" + seq});
    return open_run(posix_files(), loaded, {.fits_to_data = true, .resumes = resumes});
  };
  EXPECT_EQ(
      error_of([&] { open("97", false); }),
      "model.seq: expected at most the 96 positions that " + f.options.model + " knows, got 97");
  EXPECT_EQ(open("96", false).loaded.config.model.seq, 96);
  EXPECT_EQ(open("97", true).loaded.config.model.seq, 97);  // begun before
}

TEST(AdapterTargets, are_all_linears_of_each_architecture) {
  const auto names = [](ModelKind kind) {
    std::map<std::string, int> count;
    const ModelGraph model = build_model(small_spec(kind), {1, 8}, ModelOutputs::loss);
    for (const LoraAdapter& adapter :
         lora_adapters(model.graph, {.rank = 1, .targets = RunConfig{}.lora.targets}))
      ++count[adapter.module.substr(adapter.module.rfind('.') + 1)];
    return count;
  };
  using Names = std::map<std::string, int>;
  EXPECT_EQ(names(ModelKind::gpt2), (Names{{"c_attn", 2}, {"c_fc", 2}, {"c_proj", 4}}));
  EXPECT_EQ(
      names(ModelKind::gpt_neox),
      (Names{{"query_key_value", 2}, {"dense", 2}, {"dense_h_to_4h", 2}, {"dense_4h_to_h", 2}}));
  EXPECT_EQ(names(ModelKind::llama), (Names{{"q_proj", 2},
                                            {"k_proj", 2},
                                            {"v_proj", 2},
                                            {"o_proj", 2},
                                            {"gate_proj", 2},
                                            {"up_proj", 2},
                                            {"down_proj", 2}}));
}

TEST(FormerDefaults, stay_those_of_a_run_that_goes_on) {
  Fixture f;
  const std::vector<std::string> sets = {"train.steps=2", "train.export=none"};
  std::vector<std::string> former = sets;
  former.push_back("data.too_long=drop");
  {
    Tuner tuner(f.options, former);
    tuner.trainer.run({StartMode::fresh, tuner.loaded.source}, {});
  }
  LoadedConfig now = finetune_config(posix_files(), f.options, sets);
  EXPECT_EQ(now.config.data.too_long, TooLong::split);
  keep_what_resumes(posix_files(), now, {});
  EXPECT_EQ(now.config.data.too_long, TooLong::drop);
  EXPECT_EQ(now.config.data.chat.arguments, CallArguments::parse);
  // A checkpoint of before has not heard of the key.
  const std::string manifest = f.options.out + "/ckpt/step-000002/manifest.json";
  ASSERT_TRUE(posix_files().exists(manifest));
  const std::string text = posix_files().read_text(manifest);
  Manifest before = parse_manifest(text, manifest);
  before.config.erase("data.chat.arguments");
  std::string without = manifest_to_json(before);
  without.resize(text.size(), '\n');  // of the size that COMPLETE says
  write_atomically(posix_files(), manifest, without);
  keep_what_resumes(posix_files(), now = finetune_config(posix_files(), f.options, sets), {});
  EXPECT_EQ(now.config.data.chat.arguments, CallArguments::keep);
}

TEST(MixedData, has_texts_beside_conversations_by_weight) {
  Fixture f;
  f.folder.put("book.txt", "once upon a time## there was a book## that was read## to the end");
  const std::string talks = f.options.data.front(), book = f.folder / "book.txt";
  f.options.data = {talks};
  const std::vector<std::string> sets = {
      "data.document_separator='##'", "data.val_fraction=0", "data.pack=false",
      "data.train=[" + talks + ", {path: " + book + ", weight: 2.5}]"};
  const Tuning tuning(f.options, sets);
  const RunConfig& config = tuning.config();
  EXPECT_EQ(config.data.train, (std::vector<std::string>{talks, book}));
  EXPECT_EQ(config.data.train_weights, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(make_loader(tuning.data, config).rows_of_epoch(0), 60 + 10);
  // The configuration that is kept says the same again.
  const RunConfig again = parse_config(resolved_yaml(config), "run.yaml", {}).config;
  EXPECT_EQ(again.data.train_weights, config.data.train_weights);
}

TEST(MixedData, holds_out_the_end_of_each_entry_and_whole_records) {
  Fixture f;
  f.folder.put("book.txt", "aaaa##bbbb##cccc##dddd");
  const std::string book = f.folder / "book.txt";
  f.options.data.push_back(book);
  const Tuning tuning(f.options, {"data.document_separator='##'", "data.val_fraction=0.25"});
  const auto text_of = [](const TokenStream& stream) {
    std::string text;
    for_each_token(stream, [&](int64_t, int32_t id, uint8_t) {
      text += static_cast<char>(id);
      return true;
    });
    return text;
  };
  const std::string train = text_of(tuning.data.train), val = text_of(tuning.data.val);
  EXPECT_THAT(train, testing::EndsWith("aaaabbbbcccc"));
  EXPECT_THAT(val, testing::EndsWith("dddd"));
  EXPECT_THAT(val, testing::StartsWith("User: "));
  const auto count = [](const std::string& text) {
    int n = 0;
    for (size_t at = text.find("User: "); at != text.npos; at = text.find("User: ", at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count(train), 45);
  EXPECT_EQ(count(val), 15);
}

}  // namespace
}  // namespace octet::finetune_mixed_test
