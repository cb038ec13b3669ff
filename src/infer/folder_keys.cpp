#include "infer/folder_keys.h"

#include <algorithm>

#include "base/json.h"
#include "infer/sentence_folder.h"
#include "nn/model.h"

namespace octet {
namespace {

using Keys = const std::string_view[];

constexpr Keys kTokenizerRead = {
    "add_bos_token",
    "add_eos_token",
    "add_prefix_space",
    "added_tokens_decoder",
    "additional_special_tokens",
    "bos_token",
    "chat_template",
    "clean_up_tokenization_spaces",
    "cls_token",
    "do_lower_case",
    "eos_token",
    "extra_ids",
    "extra_special_tokens",
    "legacy",
    "mask_token",
    "model_input_names",
    "model_max_length",
    "pad_token",
    "padding_side",
    "sep_token",
    "split_special_tokens",
    "strip_accents",
    "tokenize_chinese_chars",
    "tokenizer_class",
    "unk_token",
};
constexpr Keys kTokenizerNeutral = {
    "backend",
    "do_basic_tokenize",
    "errors",
    "is_local",
    "local_files_only",
    "max_length",
    "name_or_path",
    "never_split",
    "pad_to_multiple_of",
    "pad_token_type_id",
    "padding",
    "processor_class",
    "sp_model_kwargs",
    "spaces_between_special_tokens",
    "special_tokens_map_file",
    "stride",
    "tokenizer_file",
    "truncation",
    "truncation_strategy",
    "unk_id",
    "use_default_system_prompt",
    "wordpieces_prefix",
};

constexpr Keys kSentencesRead = {"default_prompt_name", "model_type", "truncate_dim"};
constexpr Keys kSentencesNeutral = {"__version__", "prompts", "similarity_fn_name"};

constexpr Keys kTransformerRead = {
    "config_args",       "config_kwargs",    "do_lower_case",  "max_seq_length",
    "modality_config",   "model_args",       "model_kwargs",   "module_output_name",
    "processing_kwargs", "processor_kwargs", "tokenizer_args", "tokenizer_name_or_path",
    "transformer_task"};
// The lengths are of queries and documents, which a caller asks for by these names.
constexpr Keys kTransformerNeutral = {"config_args/trust_remote_code",
                                      "config_kwargs/trust_remote_code",
                                      "document_length",
                                      "model_args/attn_implementation",
                                      "model_args/trust_remote_code",
                                      "model_kwargs/attn_implementation",
                                      "model_kwargs/trust_remote_code",
                                      "processor_kwargs/trust_remote_code",
                                      "query_length",
                                      "tokenizer_args/trust_remote_code",
                                      "unpad_inputs"};

constexpr FolderKeys kFiles[] = {
    {"tokenizer_config.json", kTokenizerRead, kTokenizerNeutral},
    {"config_sentence_transformers.json", kSentencesRead, kSentencesNeutral},
    {kSentenceSettings, kTransformerRead, kTransformerNeutral},
};

// Which end texts lose: those of encoders and of models that translate, beside others only what
// programs take without the key.
bool cuts_texts(const Files& files, const std::string& folder, std::string_view key,
                const Json& value) {
  if (key != "truncation_side") return false;
  const std::string path = join_path(folder, "config.json");
  if (value == "right" || !files.exists(path)) return value == "right";
  const Json config = parse_json(files.read_text(path), path);
  const Json type = config.is_object() ? config.value("model_type", Json()) : Json();
  const ModelDef* const def = find_model(type.is_string() ? type.get<std::string>() : "");
  if (def == nullptr) return false;
  return (def->reads_text && !def->heads.empty()) || def->translates;
}

// Marian's names of its languages: its files are of one source and one target, or texts name them.
bool names_language(const Files& files, const std::string& folder, std::string_view key) {
  return (key == "source_lang" || key == "target_lang") &&
         files.exists(join_path(folder, "source.spm"));
}

}  // namespace

std::span<const FolderKeys> folder_keys() {
  return kFiles;
}

std::vector<FolderKey> unknown_folder_keys(const Files& files, const std::string& folder) {
  std::vector<FolderKey> unknown;
  for (const FolderKeys& keys : kFiles) {
    const bool is_of_sentences = keys.file == kSentenceSettings;
    const std::string_view name = is_of_sentences ? sentence_settings(files, folder) : keys.file;
    const std::string path = join_path(folder, name);
    if (!files.exists(path)) continue;
    const Json json = parse_json(files.read_text(path), path);
    if (!json.is_object()) continue;  // its reader says so
    for (const auto& [key, value] : json.items()) {
      const bool is_known =
          std::ranges::count(keys.read, key) > 0 || std::ranges::count(keys.neutral, key) > 0;
      // Any name that ends so is a special token's.
      if (is_known || key.ends_with("_token") || asks_nothing(value) ||
          cuts_texts(files, folder, key, value) || names_language(files, folder, key))
        continue;
      unknown.push_back({name, key});
    }
  }
  return unknown;
}

}  // namespace octet
