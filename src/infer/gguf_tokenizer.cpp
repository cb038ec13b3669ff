// The vocabulary of a GGUF file in Hugging Face's files. Source: the pre-tokenizers that llama.cpp
// names in tokenizer.ggml.pre, and tokenizer.json as the tokenizers package reads it.
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "infer/import_gguf.h"

namespace octet {
namespace {

// tokenizer.ggml.token_type
constexpr int32_t kControl = 3, kUserDefined = 4, kUnused = 5;

// Expressions as their own tokenizer.json files spell them.
constexpr std::string_view kLlama3Words =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kQwenWords =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

Json byte_level(bool is_by_words) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", is_by_words}};
}

Json sequence_of(Json first, bool is_by_words) {
  return {{"type", "Sequence"},
          {"pretokenizers", Json::array({std::move(first), byte_level(is_by_words)})}};
}

Json split_words(std::string_view regex) {
  return sequence_of({{"type", "Split"},
                      {"pattern", {{"Regex", regex}}},
                      {"behavior", "Isolated"},
                      {"invert", false}},
                     false);
}

Json pre_tokenizer(const std::string& name, const std::string& path) {
  if (name == "smollm") return sequence_of({{"type", "Digits"}, {"individual_digits", true}}, true);
  if (name == "llama-bpe") return split_words(kLlama3Words);
  if (name == "qwen2") return split_words(kQwenWords);
  if (name == "gpt-2" || name == "mpt" || name == "olmo") return byte_level(true);
  throw Error(ErrorCode::bad_data, "[gguf] {}: tokenizer.ggml.pre '{}' is not supported", path,
              name);
}

std::string text_or(const GgufHeader& header, const std::string& key, const std::string& other) {
  return header.has(key) ? header.string(key) : other;
}

struct SpecialToken {
  const char* name;  // in tokenizer_config.json; its id's in generation_config.json
  const char* key;   // in the metadata
};
constexpr SpecialToken kSpecialTokens[] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                           {"eos_token", "tokenizer.ggml.eos_token_id"},
                                           {"unk_token", "tokenizer.ggml.unknown_token_id"},
                                           {"pad_token", "tokenizer.ggml.padding_token_id"}};

// The token that begins each text, as a template of one; null where there is none.
Json post_processor(const GgufHeader& header, const std::vector<std::string_view>& tokens) {
  const std::string adds = "tokenizer.ggml.add_bos_token", bos = "tokenizer.ggml.bos_token_id";
  if (!header.has(adds) || !header.flag(adds) || !header.has(bos)) return nullptr;
  const uint32_t id = header.number(bos);
  if (id >= tokens.size()) return nullptr;
  const std::string token(tokens[id]);
  const Json special = {{"SpecialToken", {{"id", token}, {"type_id", 0}}}};
  const auto text = [](const char* name, int type) {
    return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  return {
      {"type", "TemplateProcessing"},
      {"single", Json::array({special, text("A", 0)})},
      {"pair", Json::array({special, text("A", 0), text("B", 1)})},
      {"special_tokens",
       {{token, {{"id", token}, {"ids", Json::array({id})}, {"tokens", Json::array({token})}}}}}};
}

Json added_token(size_t id, std::string_view content, bool is_special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", is_special}};
}

}  // namespace

std::string gguf_tokenizer_json(const GgufHeader& header, const std::string& path) {
  const std::string model = header.string("tokenizer.ggml.model");
  if (model != "gpt2") {
    throw Error(ErrorCode::bad_data, "[gguf] {}: expected tokenizer.ggml.model 'gpt2', got '{}'",
                path, model);
  }
  const auto tokens = header.strings("tokenizer.ggml.tokens");
  const auto types = header.integers("tokenizer.ggml.token_type");
  if (types.size() != tokens.size()) {
    throw Error(ErrorCode::bad_data, "[gguf] {}: expected a type for each token, got {} for {}",
                path, types.size(), tokens.size());
  }
  const std::string pre = text_or(header, "tokenizer.ggml.pre", "gpt-2");
  Json vocab = Json::object(), added = Json::array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (types[i] == kUnused) continue;
    vocab[std::string(tokens[i])] = i;
    if (types[i] == kControl || types[i] == kUserDefined)
      added.push_back(added_token(i, tokens[i], types[i] == kControl));
  }
  Json merges = Json::array();
  for (const std::string_view merge : header.strings("tokenizer.ggml.merges"))
    merges.push_back(std::string(merge));
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added},
                     {"normalizer", pre == "qwen2" ? Json{{"type", "NFC"}} : Json()},
                     {"pre_tokenizer", pre_tokenizer(pre, path)},
                     {"post_processor", post_processor(header, tokens)},
                     {"decoder", byte_level(true)},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", pre == "llama-bpe"},
                       {"vocab", vocab},
                       {"merges", merges}}}};
  return json.dump(1) + "\n";
}

std::string gguf_tokenizer_config(const GgufHeader& header) {
  const auto tokens = header.strings("tokenizer.ggml.tokens");
  Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"clean_up_tokenization_spaces", false}};
  for (const SpecialToken& token : kSpecialTokens) {
    if (!header.has(token.key) || header.number(token.key) >= tokens.size()) continue;
    json[token.name] = std::string(tokens[header.number(token.key)]);
  }
  if (header.has("llama.context_length"))
    json["model_max_length"] = header.number("llama.context_length");
  const std::string chat = "tokenizer.chat_template";
  if (header.has(chat)) json["chat_template"] = header.string(chat);
  return json.dump(1) + "\n";
}

std::string gguf_generation_config(const GgufHeader& header) {
  Json json = Json::object();
  for (const SpecialToken& token : kSpecialTokens) {
    if (std::string_view(token.name) == "unk_token" || !header.has(token.key)) continue;
    json[std::string(token.name) + "_id"] = header.number(token.key);
  }
  return json.dump(1) + "\n";
}

}  // namespace octet
