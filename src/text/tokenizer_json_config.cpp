// Settings of tokenizer_config.json that differ from the tokenizer.json beside it. Source: the
// classes of transformers 4 and 5, which take lower case, accents, ideographs and a first space
// from the former.
#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "text/tokenizer_files.h"
#include "text/tokenizer_folder.h"

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

// What stands for a token in a model's vocabulary: an object's value, or of Unigram, a list of
// [piece, score], its place.
std::optional<Json> place_of(const Json& vocab, const std::string& text) {
  if (vocab.is_object()) {
    const auto at = vocab.find(text);
    return at == vocab.end() ? std::nullopt : std::optional<Json>(*at);
  }
  for (size_t i = 0; vocab.is_array() && i < vocab.size(); ++i) {
    const bool is_it = vocab[i].is_array() && !vocab[i].empty() && vocab[i][0] == text;
    if (is_it) return Json(i);
  }
  return std::nullopt;
}

// Tokens that the files beside name are found whole in texts, whatever the class: those of the
// vocabulary that are not among added_tokens join them. What else the file may be its reader says.
void add_named_words(const TokenizerFolder& folder, Json& json) {
  const bool has_vocab =
      json.is_object() && json.contains("model") && json["model"].contains("vocab");
  if (!has_vocab || !json.value("added_tokens", Json::array()).is_array()) return;
  std::set<std::string> known;
  for (const Json& entry : json.value("added_tokens", Json::array())) {
    if (const auto content = entry.is_object() ? token_of(entry, "content") : std::nullopt)
      known.insert(*content);
  }
  for (const auto* tokens : {&folder.named, &folder.added}) {
    for (const AddedToken& token : *tokens) {
      if (!known.insert(token.content).second) continue;
      const auto id = place_of(json["model"]["vocab"], token.content);
      if (!id || !id->is_number_integer()) continue;
      json["added_tokens"].push_back({{"id", *id},
                                      {"content", token.content},
                                      {"single_word", token.single_word},
                                      {"lstrip", token.lstrip},
                                      {"rstrip", token.rstrip},
                                      {"normalized", token.normalized},
                                      {"special", token.special}});
    }
  }
}

bool is_of_llama(std::string_view type) {
  return type == "LlamaTokenizer" || type == "LlamaTokenizerFast";
}

// Metaspace puts a mark before the first part of a text alone (first), or before each (always).
std::string scheme_of(const Json& step) {
  const Json scheme = step.value("prepend_scheme", Json());
  if (scheme.is_string()) return scheme.get<std::string>();
  return step.value("add_prefix_space", Json()) == false ? "never" : "always";
}

// Visits a step and those of the lists in it.
void for_each_step(Json& step, const std::function<void(Json& step)>& fn) {
  if (!step.is_object()) return;
  fn(step);
  for (const char* list : {"normalizers", "pretokenizers", "decoders"}) {
    if (!step.contains(list) || !step[list].is_array()) continue;
    for (Json& one : step[list]) for_each_step(one, fn);
  }
}

// Visits the steps that put a mark before texts: Prepend among normalizers, Metaspace among words.
void for_each_mark(Json& json, const std::function<void(Json& step)>& fn) {
  for (const char* part : {"normalizer", "pre_tokenizer"}) {
    if (!json.contains(part)) continue;
    for_each_step(json[part], [&](Json& step) {
      if (is_step(step, "Prepend") || is_step(step, "Metaspace")) fn(step);
    });
  }
}

void leave_first_space(Json& metaspace) {
  metaspace["prepend_scheme"] = "never";
  metaspace.erase("add_prefix_space");
}

// add_prefix_space of Llama's classes, which make the steps anew where it is said.
void take_first_space(const std::string& path, bool adds, Json& json) {
  bool puts_mark = false;
  for_each_mark(json, [&](Json& step) {
    puts_mark |= is_step(step, "Prepend") || scheme_of(step) != "never";
    if (adds) return;
    if (is_step(step, "Prepend")) {
      step = {{"type", "Sequence"}, {"normalizers", Json::array()}};
    } else {
      leave_first_space(step);
    }
  });
  if (adds && !puts_mark)
    bad_tokenizer(path, "add_prefix_space: expected tokenizer.json's false, got true");
  if (adds || !puts_mark || !json.contains("decoder")) return;
  for_each_step(json["decoder"], [](Json& step) {
    if (is_step(step, "Metaspace")) leave_first_space(step);
    if (!step.value("decoders", Json()).is_array()) return;
    Json kept = Json::array();
    for (const Json& one : step["decoders"]) {
      if (!is_step(one, "Strip")) kept.push_back(one);
    }
    step["decoders"] = std::move(kept);
  });
}

}  // namespace

Json with_config(const TokenizerFile& file, Json json) {
  add_named_words(read_tokenizer_folder(file.files, parent_path(file.path)), json);
  const std::string path = join_path(parent_path(file.path), "tokenizer_config.json");
  if (!file.files.exists(path)) return json;
  const Json config = parse_json(file.files.read_text(path), path);
  const JsonObject object(config, path);
  if (object.has("split_special_tokens") && object.boolean_or("split_special_tokens", false))
    bad_tokenizer(path, "split_special_tokens: expected false, got true");
  const std::string type = object.has("tokenizer_class") ? object.string("tokenizer_class") : "";
  if (is_of_llama(type) && object.has("add_prefix_space"))
    take_first_space(path, object.boolean_or("add_prefix_space", false), json);
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

BesideJson read_beside_json(const Files& files, const std::string& folder) {
  BesideJson beside;
  const std::string path = join_path(folder, "tokenizer.json");
  if (!files.exists(path)) return beside;
  Json json = parse_json(files.read_text(path), path);
  if (!json.is_object()) return beside;  // its reader says so
  const TokenizerFolder said = read_tokenizer_folder(files, folder);
  const Json added = json.value("added_tokens", Json::array());
  const auto is_added = [&](const std::string& text) {
    return std::ranges::any_of(added, [&](const Json& entry) {
      return entry.is_object() && entry.value("content", Json()) == text;
    });
  };
  const bool has_vocab = json.contains("model") && json["model"].contains("vocab");
  for (const auto* tokens : {&said.named, &said.added}) {
    for (const AddedToken& token : *tokens) {
      if (!has_vocab) break;  // its reader says so
      const std::string& text = token.content;
      if (place_of(json["model"]["vocab"], text) || is_added(text)) continue;
      if (std::ranges::count(beside.tokens, text) == 0) beside.tokens.push_back(text);
    }
  }
  if (!is_of_llama(said.tokenizer_class) || !said.is_legacy) return beside;
  for_each_mark(json, [&](Json& step) {
    const std::string scheme = is_step(step, "Prepend") ? "always" : scheme_of(step);
    beside.contradicts_legacy |= scheme == (*said.is_legacy ? "first" : "always");
  });
  return beside;
}

}  // namespace octet
