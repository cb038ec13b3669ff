// Settings of tokenizer_config.json that differ from the tokenizer.json beside it. Source: the
// classes of transformers 4 and 5, which take lower case, accents, ideographs and a first space
// from the former.
#include <algorithm>
#include <optional>
#include <set>

#include "text/tokenizer_files.h"

namespace octet {
namespace {

// Classes that take a tokenizer.json as it is.
constexpr std::string_view kAsItIs[] = {"PreTrainedTokenizerFast", "TokenizersBackend",
                                        "LlamaTokenizer", "LlamaTokenizerFast"};

struct SameKey {
  const char* config;
  const char* step;
};
constexpr SameKey kOfBert[] = {{"do_lower_case", "lowercase"},
                               {"strip_accents", "strip_accents"},
                               {"tokenize_chinese_chars", "handle_chinese_chars"}};
constexpr std::string_view kFollows = "strip_accents";
constexpr SameKey kOfBytes[] = {{"add_prefix_space", "add_prefix_space"}};

bool is_step(const Json& step, std::string_view type) {
  return step.is_object() && step.value("type", Json()) == std::string(type);
}

// In a step of this type, or in those of a sequence.
void take(const Json& config, std::span<const SameKey> keys, std::string_view type, Json& step) {
  if (!step.is_object()) return;
  for (const char* list : {"normalizers", "pretokenizers"}) {
    if (!step.contains(list) || !step[list].is_array()) continue;
    for (Json& part : step[list]) take(config, keys, type, part);
  }
  if (!is_step(step, type)) return;
  for (const SameKey& key : keys) {
    const Json value = config.value(key.config, Json());
    const bool is_said = config.contains(key.config) && std::string_view(key.step) == kFollows;
    if (is_said || !value.is_null()) step[key.step] = value;  // a null: as lower case is
  }
}

// The special tokens of a post-processor as it spells them.
std::set<std::string> spelled(const Json& processor) {
  std::set<std::string> names;
  if (!processor.is_object()) return names;
  for (const char* end : {"cls", "sep"}) {
    const Json pair = processor.value(end, Json());
    if (pair.is_array() && !pair.empty() && pair[0].is_string())
      names.insert(pair[0].get<std::string>());
  }
  const Json tokens = processor.value("special_tokens", Json::object());
  if (!tokens.is_object()) return names;
  for (const auto& [name, token] : tokens.items()) names.insert(name);
  return names;
}

// A token's text, as itself or in an object; nothing of another value.
std::optional<std::string> token_of(const Json& config, const char* key) {
  const Json value = config.value(key, Json());
  const Json token = value.is_object() ? value.value("content", Json()) : value;
  return token.is_string() ? std::optional(token.get<std::string>()) : std::nullopt;
}

// transformers 5 puts these tokens around a text, and one in place of unknown words, whatever the
// tokenizer.json says, and others do not.
void expect_specials(const std::string& path, const Json& config, const Json& json) {
  const std::set<std::string> names = spelled(json.value("post_processor", Json()));
  for (const char* key : {"cls_token", "sep_token"}) {
    const std::optional<std::string> token = token_of(config, key);
    if (names.empty() || !token || names.contains(*token)) continue;
    bad_tokenizer(path, "{}: expected a token that tokenizer.json puts around texts, got '{}'", key,
                  *token);
  }
  const bool has_model = json.contains("model") && json["model"].is_object();
  const auto own = has_model ? token_of(json["model"], "unk_token") : std::nullopt;
  const std::optional<std::string> unknown = token_of(config, "unk_token");
  if (own && unknown && *own != *unknown)
    bad_tokenizer(path, "unk_token: expected tokenizer.json's '{}', got '{}'", *own, *unknown);
}

}  // namespace

Json with_config(const TokenizerFile& file, Json json) {
  const std::string path = join_path(parent_path(file.path), "tokenizer_config.json");
  if (!file.files.exists(path)) return json;
  const Json config = parse_json(file.files.read_text(path), path);
  const JsonObject object(config, path);
  if (object.has("split_special_tokens") && object.boolean_or("split_special_tokens", false))
    bad_tokenizer(path, "split_special_tokens: expected false, got true");
  const std::string type = object.has("tokenizer_class") ? object.string("tokenizer_class") : "";
  if (std::ranges::count(kAsItIs, type) > 0) return json;
  for (const char* flag : {"do_lower_case", "tokenize_chinese_chars", "add_prefix_space"}) {
    if (object.has(flag)) (void)object.boolean_or(flag, false);  // throws for another value
  }
  if (json.contains("normalizer")) take(config, kOfBert, "BertNormalizer", json["normalizer"]);
  if (json.contains("pre_tokenizer")) take(config, kOfBytes, "ByteLevel", json["pre_tokenizer"]);
  if (is_step(json.value("normalizer", Json()), "BertNormalizer"))
    expect_specials(path, config, json);
  return json;
}

}  // namespace octet
