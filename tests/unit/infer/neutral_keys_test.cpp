// The tables of neutral keys in the code, and their proofs (tools/neutral_keys.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "base/files.h"
#include "infer/folder_keys.h"
#include "infer/gguf_spec.h"
#include "infer/image_transforms.h"
#include "io/quantization_config.h"
#include "nn/hf_config.h"
#include "nn/list.h"
#include "nn/model.h"
#include "unit/base/scratch_folder.h"

namespace octet::infer_neutral_keys_test {
namespace {

using Row = std::map<std::string, std::string>;

// Fields of one line; quoted ones hold commas, and quotes twice.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (const char c : line) {
    if (c == '"') is_quoted = !is_quoted;
    if (c == ',' && !is_quoted) {
      fields.emplace_back();
    } else if (c != '"') {
      fields.back() += c;
    }
  }
  return fields;
}

std::vector<Row> proofs() {
  std::istringstream text(
      posix_files().read_text(OCTET_SOURCE_DIR "/docs/results/neutral_keys.csv"));
  std::string line;
  std::getline(text, line);
  const std::vector<std::string> names = fields_of(line);
  std::vector<Row> rows;
  while (std::getline(text, line)) {
    const std::vector<std::string> fields = fields_of(line);
    EXPECT_EQ(fields.size(), names.size()) << line;
    Row row;
    for (size_t i = 0; i < std::min(names.size(), fields.size()); ++i) row[names[i]] = fields[i];
    EXPECT_FALSE(row["proof"].empty()) << line;
    rows.push_back(row);
  }
  return rows;
}

// "reader: key", of a reader whose keys are always neutral.
std::set<std::string> proved(std::string_view reader) {
  std::set<std::string> keys;
  for (Row& row : proofs()) {
    if (row["reader"] == reader) keys.insert(row["key"]);
  }
  return keys;
}

std::set<std::string> as_set(std::span<const std::string_view> keys) {
  return {keys.begin(), keys.end()};
}

// Of no class of transformers, whose keys these are.
bool is_of_other_keys(const ModelDef& def) {
  return def.name == "vgg" || def.name == "densenet" || def.name == "lstm_seq2seq";
}

TEST(NeutralKeys, of_config_json_have_a_proof_for_each_model_that_passes_over_them) {
  std::set<std::string> of_code, of_table;
  for (const ModelDef* def : all_models()) {
    if (is_of_other_keys(*def)) continue;
    for (const std::string_view key : passed_over_keys(*def))
      of_code.insert(std::string(def->name) + " " + std::string(key));
  }
  for (Row& row : proofs()) {
    if (row["reader"] != "config.json" || row["given"].find(": ") != std::string::npos) continue;
    for (const ModelDef* def : all_models()) {
      if (is_of_other_keys(*def)) continue;
      const std::string name(def->name), all = " " + row["models"] + " ";
      if (row["models"] == "all" || all.find(" " + name + " ") != std::string::npos)
        of_table.insert(name + " " + row["key"]);
    }
  }
  EXPECT_EQ(of_code, of_table);
  EXPECT_GT(of_code.size(), 1000U);
}

TEST(NeutralKeys, that_another_key_turns_off_have_a_proof) {
  std::set<std::string> turned_off;
  for (Row& row : proofs()) {
    if (row["reader"] == "config.json") turned_off.insert(row["given"] + " " + row["key"]);
  }
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow",
                          "truncate", "attention_factor", "original_max_position_embeddings"})
    EXPECT_TRUE(turned_off.contains("rope/rope_type: default rope/" + std::string(key))) << key;
  EXPECT_TRUE(turned_off.contains("use_sliding_window: false sliding_window"));
}

TEST(NeutralKeys, of_the_files_beside_it_have_a_proof) {
  for (const FolderKeys& keys : folder_keys()) {
    EXPECT_EQ(as_set(keys.neutral), proved(keys.file)) << keys.file;
    for (const std::string_view key : keys.read)
      EXPECT_EQ(std::ranges::count(keys.neutral, key), 0) << key;
  }
}

TEST(NeutralKeys, of_quantized_folders_pictures_and_gguf_have_a_proof) {
  EXPECT_EQ(as_set(neutral_quantization_keys()), proved("quantization_config"));
  EXPECT_EQ(as_set(neutral_fp8_keys()), proved("quantization_config, fp8"));
  EXPECT_EQ(as_set(neutral_image_keys()), proved(kImageProcessor));
  std::set<std::string> unproved, known;
  const std::set<std::string> rows = proved("gguf");
  for (const std::string_view key : neutral_gguf_keys()) {
    known.emplace(key);
    const bool is_prefix = key.ends_with('.');
    if (std::ranges::none_of(rows, [&](const std::string& row) {
          return is_prefix ? row.starts_with(key) : row == key;
        }))
      unproved.emplace(key);
  }
  EXPECT_EQ(unproved, std::set<std::string>());
  for (const std::string& row : rows) {
    EXPECT_TRUE(known.contains(row) || known.contains(row.substr(0, row.find('.') + 1))) << row;
  }
}

// The mistakes of former tables.
TEST(NeutralKeys, are_not_those_that_change_an_output) {
  const auto passes_over = [](ModelKind kind, std::string_view key) {
    const auto keys = passed_over_keys(model_def(kind));
    return std::ranges::count(keys, key) > 0;
  };
  EXPECT_TRUE(passes_over(ModelKind::bert, "pad_token_id"));
  EXPECT_FALSE(passes_over(ModelKind::roberta, "pad_token_id"));
  EXPECT_TRUE(passes_over(ModelKind::llama, "is_decoder"));
  EXPECT_FALSE(passes_over(ModelKind::bert, "is_decoder"));
  EXPECT_FALSE(passes_over(ModelKind::roberta, "is_decoder"));
}

TEST(NeutralKeys, unknown_ones_are_named_with_their_file) {
  const test::ScratchFolder folder;
  folder.put("tokenizer_config.json",
             R"({"tokenizer_class": "x", "errors": "strict", "image_token": "<i>", "foo": 1,)"
             R"( "truncation_side": "left", "nothing": null, "none": false, "empty": []})");
  folder.put("sentence_bert_config.json", R"({"max_seq_length": 7, "bar": {"a": 1}})");
  EXPECT_EQ(unknown_folder_keys(posix_files(), folder.path()),
            (std::vector<FolderKey>{{"tokenizer_config.json", "foo"},
                                    {"tokenizer_config.json", "truncation_side"},
                                    {"sentence_bert_config.json", "bar"}}));
}

TEST(NeutralKeys, the_side_that_texts_lose_is_one_of_models_that_cut_texts) {
  const auto is_unknown = [](const char* model_type) {
    const test::ScratchFolder folder;
    folder.put("tokenizer_config.json", R"({"truncation_side": "left"})");
    folder.put("config.json", std::string(R"({"model_type": ")") + model_type + "\"}");
    return !unknown_folder_keys(posix_files(), folder.path()).empty();
  };
  EXPECT_FALSE(is_unknown("bert"));
  EXPECT_FALSE(is_unknown("t5"));
  EXPECT_FALSE(is_unknown("marian"));
  EXPECT_TRUE(is_unknown("llama"));
}

}  // namespace
}  // namespace octet::infer_neutral_keys_test
