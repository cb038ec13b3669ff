#include "data/split_tokens.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/json.h"

namespace octet {
namespace {

// A token is text, or an object with its text as `content`.
void take_token(const Json& json, std::set<std::string>& tokens) {
  if (json.is_string()) {
    tokens.insert(json.get<std::string>());
  } else if (json.is_object() && json.contains("content") && json["content"].is_string()) {
    tokens.insert(json["content"].get<std::string>());
  }
}

// What a tokenizer_config.json or special_tokens_map.json names as tokens.
std::set<std::string> named_tokens(const Json& config) {
  std::set<std::string> tokens;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    if (config.contains(name)) take_token(config[name], tokens);
  }
  for (const char* name :
       {"added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"}) {
    if (!config.contains(name) || !config[name].is_structured()) continue;
    for (const Json& token : config[name]) take_token(token, tokens);
  }
  return tokens;
}

std::set<std::string> keys_of(const Json& json) {
  std::set<std::string> keys;
  for (const auto& [key, id] : json.items()) keys.insert(key);
  return keys;
}

size_t count_tokens(const Tokenizer& tokenizer, const std::string& text) {
  if (text.empty() || tokenizer.special_id(text)) return 1;
  const std::vector<int32_t> ids = tokenizer.encode(text, {.special = SpecialText::parse});
  const bool has_own =
      std::ranges::any_of(ids, [&](int32_t id) { return tokenizer.token_bytes(id) == text; });
  return has_own ? 1 : ids.size();
}

}  // namespace

std::vector<SplitToken> split_tokens(const Files& files, const std::vector<std::string>& folders,
                                     const Tokenizer& tokenizer) {
  std::vector<SplitToken> split;
  if (!tokenizer.eos() && tokenizer.vocab_size() == 256)
    return split;  // bytes: there are no others
  for (const std::string& folder : folders) {
    if (folder.empty() || !files.is_directory(folder)) continue;
    for (const char* name :
         {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
      const std::string path = join_path(folder, name);
      if (files.kind(path) != EntryKind::file) continue;
      const Json json = parse_json(files.read_text(path), path);
      if (!json.is_object()) continue;
      const bool is_list = std::string_view(name) == "added_tokens.json";
      for (const std::string& text : is_list ? keys_of(json) : named_tokens(json)) {
        const size_t n = count_tokens(tokenizer, text);
        if (n > 1) split.push_back({text, path, n});
      }
    }
  }
  return split;
}

}  // namespace octet
