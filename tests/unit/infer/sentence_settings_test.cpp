// Settings of sentence-transformers that give other vectors of the same files: used, or refused by
// name. tools/neutral_sentences.py has those that change none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/folder_keys.h"
#include "infer/sentence_folder.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::infer_sentence_settings_test {
namespace {

using test::error_of;
using test::ScratchFolder;
using testing::HasSubstr;

constexpr const char* kModules =
    R"([{"idx":0,"path":"","type":"sentence_transformers.models.Transformer"},
        {"idx":1,"path":"1_Pooling","type":"sentence_transformers.models.Pooling"},
        {"idx":2,"path":"2_Normalize","type":"sentence_transformers.models.Normalize"}])";

// Files as sentence-transformers 6.2 writes them.
void put_sentence(const ScratchFolder& folder) {
  folder.put("modules.json", kModules);
  folder.put("1_Pooling/config.json",
             R"({"embedding_dimension": 32, "pooling_mode": "cls", "include_prompt": true})");
  folder.put("2_Normalize/config.json", R"({"module_input_name": "sentence_embedding",
                                            "module_output_name": "sentence_embedding"})");
  folder.put("sentence_bert_config.json", R"({
    "transformer_task": "feature-extraction", "module_output_name": "token_embeddings",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "model_args": {"attn_implementation": "eager", "trust_remote_code": true, "dtype": null},
    "config_args": {}, "query_length": 7})");
  folder.put("config_sentence_transformers.json",
             R"({"model_type": "SentenceTransformer", "default_prompt_name": null})");
}

SentenceFolder read(const ScratchFolder& folder) {
  return read_sentence_folder(posix_files(), folder.path());
}

TEST(SentenceSettings, as_they_are_written_are_read) {
  const ScratchFolder folder;
  put_sentence(folder);
  const SentenceFolder said = read(folder);
  EXPECT_TRUE(said.is_said && said.normalizes && said.pooling == Pooling::cls);
  EXPECT_EQ(said.width, 0);
  EXPECT_TRUE(unknown_folder_keys(posix_files(), folder.path()).empty());
  folder.put("config_sentence_transformers.json", R"({"truncate_dim": 12})");
  EXPECT_EQ(read(folder).width, 12);
}

TEST(SentenceSettings, that_give_other_vectors_are_refused_by_name) {
  struct Case {
    const char *file, *text, *error;
  };
  const char* settings = "sentence_bert_config.json";
  const char* config = "config_sentence_transformers.json";
  const Case cases[] = {
      {config, R"({"truncate_dim": 0})", "truncate_dim: a number of values, got 0"},
      {config, R"({"model_type": "SparseEncoder"})", "model_type: SentenceTransformer"},
      {config, R"({"model_type": null})", "model_type: SentenceTransformer, got null"},
      {config, R"({"default_prompt_name": "query"})", "no default_prompt_name, got query"},
      {settings, R"({"transformer_task": "fill-mask"})",
       "transformer_task: \"feature-extraction\""},
      {settings, R"({"module_output_name": "scores"})", "module_output_name: \"token_embeddings\""},
      {settings,
       R"({"modality_config": {"text": {"method": "forward",
           "method_output_name": ["hidden_states", -2]}}})",
       "expected text: {\"method\":\"forward\",\"method_output_name\":\"last_hidden_state\"}"},
      {settings, R"({"do_lower_case": true})", "do_lower_case: false, got true"},
      {settings, R"({"tokenizer_name_or_path": "other"})", "no tokenizer_name_or_path"},
      {settings, R"({"model_args": {"torch_dtype": "float16"}})", "no torch_dtype in model_args"},
      {settings, R"({"model_kwargs": {"dtype": "float16"}})", "no dtype in model_kwargs"},
      {settings, R"({"tokenizer_args": {"model_max_length": 6}})",
       "no model_max_length in tokenizer_args, got 6"},
      {settings, R"({"processor_kwargs": {"do_lower_case": true}})",
       "no do_lower_case in processor_kwargs, got true"},
      {settings, R"({"config_args": {"layer_norm_eps": 0.1}})", "no layer_norm_eps in config_args"},
      {settings, R"({"config_kwargs": {"hidden_act": "relu"}})", "no hidden_act in config_kwargs"},
      {settings, R"({"processing_kwargs": {"text": {"max_length": 5}}})",
       "no text in processing_kwargs"},
      {"1_Pooling/config.json", R"({"pooling_mode": "cls", "weights": [1]})",
       "expected keys of Pooling, got weights"},
      {"2_Normalize/config.json", R"({"module_input_name": "token_embeddings"})",
       "module_input_name: \"sentence_embedding\""},
      {"2_Normalize/config.json", R"({"module_output_name": "x"})",
       "module_output_name: \"sentence_embedding\""},
      {"tokenizer_config.json", R"({"padding_side": "left"})", "padding_side: right, got \"left\""},
      {"tokenizer_config.json", R"({"model_input_names": ["input_ids"]})",
       "model_input_names with attention_mask, got [\"input_ids\"]"},
      {"modules.json", R"([{"path": "0_Transformer", "type": "sentence_transformers.a.Transformer"},
                           {"path": "1_Pooling", "type": "sentence_transformers.Pooling"}])",
       "Transformer beside it, got 0_Transformer"},
      {"modules.json", R"([{"path": "", "type": "custom.Transformer"}])",
       "Transformer, Pooling and perhaps Normalize, got custom.Transformer"},
      {"tokenizer.json", R"({"padding": {"direction": "Left"}})",
       "padding with direction Right, got \"Left\""},
      {config, R"({"default_prompt_name": "q", "prompts": {"q": "Find: ", "d": ""}})",
       "no default_prompt_name, got q"},
  };
  for (const Case& one : cases) {
    const ScratchFolder folder;
    put_sentence(folder);
    folder.put("config.json", R"({"model_type": "bert"})");
    folder.put(one.file, one.text);
    EXPECT_THAT(error_of([&] { read(folder); }),
                testing::AllOf(HasSubstr(one.file), HasSubstr(one.error)))
        << one.text;
  }
}

TEST(SentenceSettings, that_change_nothing_are_taken) {
  const ScratchFolder folder;
  put_sentence(folder);
  folder.put("config.json", R"({"model_type": "bert"})");
  folder.put("config_sentence_transformers.json",
             R"({"default_prompt_name": "q", "prompts": {"q": ""}})");
  folder.put("tokenizer.json", R"({"padding": {"direction": "Left"}})");
  folder.put("tokenizer_config.json", R"({"padding_side": "right"})");  // which counts
  folder.put("1_Pooling/config.json", R"({"word_embedding_dimension": 32})");
  EXPECT_EQ(read(folder).pooling, Pooling::mean);
  folder.put("1_Pooling/config.json", R"({"pooling_mode_cls_token": false})");
  EXPECT_EQ(read(folder).pooling, Pooling::mean);
}

// A pooling of the user's takes the place of modules.json's, and of nothing else.
TEST(SentenceSettings, hold_beside_another_pooling) {
  const ScratchFolder folder;
  put_sentence(folder);
  folder.put("1_Pooling/config.json", R"({"pooling_mode": "max"})");
  folder.put("config_sentence_transformers.json", R"({"truncate_dim": 12})");
  const SentenceFolder said = read_sentence_folder(posix_files(), folder.path(), Pooling::cls);
  EXPECT_TRUE(said.pooling == Pooling::cls && said.normalizes && !said.is_said);
  EXPECT_EQ(said.width, 12);
  folder.put("sentence_bert_config.json", R"({"do_lower_case": true})");
  EXPECT_THAT(error_of([&] { read_sentence_folder(posix_files(), folder.path(), Pooling::cls); }),
              HasSubstr("do_lower_case: false, got true"));
}

// Positions that no padding moves; and with a mask no other text's length counts.
TEST(SentenceSettings, of_padding_are_taken_where_they_change_nothing) {
  const ScratchFolder folder;
  put_sentence(folder);
  folder.put("config.json", R"({"model_type": "roberta"})");
  folder.put("tokenizer_config.json",
             R"({"padding_side": "left", "model_input_names": ["attention_mask", "input_ids"]})");
  EXPECT_TRUE(read(folder).is_said);
  EXPECT_TRUE(unknown_folder_keys(posix_files(), folder.path()).empty());
}

TEST(FolderKeys, of_languages_are_neutral_beside_models_of_one_pair) {
  const ScratchFolder folder;
  folder.put("tokenizer_config.json", R"({"source_lang": "en", "target_lang": "fr"})");
  EXPECT_EQ(unknown_folder_keys(posix_files(), folder.path()).size(), 2u);
  folder.put("source.spm", "");
  EXPECT_TRUE(unknown_folder_keys(posix_files(), folder.path()).empty());
}

// The first file that says something counts for models whose settings have older names.
TEST(SentenceSettings, may_have_the_names_of_other_models) {
  const ScratchFolder folder;
  put_sentence(folder);
  folder.put("sentence_bert_config.json", "{}");
  folder.put("sentence_roberta_config.json", R"({"max_seq_length": 5, "other": 1})");
  folder.put("sentence_xlnet_config.json", R"({"max_seq_length": 9})");
  EXPECT_EQ(max_tokens_of_folder(posix_files(), folder.path(), 30), 5);
  EXPECT_EQ(unknown_folder_keys(posix_files(), folder.path()),
            (std::vector<FolderKey>{{"sentence_roberta_config.json", "other"}}));
  folder.put("sentence_roberta_config.json", R"({"do_lower_case": true})");
  EXPECT_THAT(error_of([&] { read(folder); }), HasSubstr("sentence_roberta_config.json"));
}

}  // namespace
}  // namespace octet::infer_sentence_settings_test
