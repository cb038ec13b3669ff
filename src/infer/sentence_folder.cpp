#include "infer/sentence_folder.h"

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace octet {
namespace {

constexpr std::string_view kSentenceFile = "sentence_bert_config.json";

[[noreturn]] void fail(const std::string& path, std::string_view expected, std::string_view got) {
  throw Error(ErrorCode::bad_data, "[embed] {}: expected {}, got {}", path, expected, got);
}

std::optional<Json> read_json(const Files& files, const std::string& path) {
  if (!files.exists(path)) return std::nullopt;
  return parse_json(files.read_text(path), path);
}

// Of "sentence_transformers.models.Pooling", in any package, its last part.
std::string class_of(const JsonObject& module) {
  const std::string type = module.string("type");
  return type.substr(type.rfind('.') + 1);
}

// "pooling_mode_mean_tokens": true, of several the one that is true; newer files name it.
Pooling read_pooling(const Files& files, const std::string& folder) {
  const std::string path = join_path(folder, "config.json");
  const Json json = parse_json(files.read_text(path), path);
  const JsonObject config(json, path);
  constexpr std::string_view kExpected = "one mode, mean or cls";
  if (config.has("pooling_mode")) {
    const std::string mode = config.string("pooling_mode");
    if (mode != "mean" && mode != "cls") fail(path, kExpected, mode);
    return mode == "mean" ? Pooling::mean : Pooling::cls;
  }
  std::vector<std::string> modes;
  for (const auto& [key, value] : config.items()) {
    if (key.starts_with("pooling_mode_") && value == true) modes.push_back(key);
  }
  if (modes.size() != 1) fail(path, kExpected, fmt::format("{} modes", modes.size()));
  if (modes.front() == "pooling_mode_mean_tokens") return Pooling::mean;
  if (modes.front() == "pooling_mode_cls_token") return Pooling::cls;
  fail(path, kExpected, modes.front());
}

void read_modules(const Files& files, const std::string& folder, SentenceFolder& to) {
  const std::string path = join_path(folder, "modules.json");
  const std::optional<Json> modules = read_json(files, path);
  if (!modules) return;
  if (!modules->is_array()) fail(path, "a list of modules", modules->type_name());
  to.is_said = true;
  to.normalizes = false;
  bool is_pooled = false;
  for (const Json& one : *modules) {
    const JsonObject module(one, path);
    const std::string type = class_of(module);
    if (type == "Transformer" && !is_pooled) continue;
    if (type == "Pooling" && !is_pooled) {
      to.pooling = read_pooling(files, join_path(folder, module.string_or("path", "")));
      is_pooled = true;
    } else if (type == "Normalize" && is_pooled) {
      to.normalizes = true;
    } else {
      fail(path, "Transformer, Pooling and perhaps Normalize", type);
    }
  }
  if (!is_pooled) fail(path, "a module Pooling", "none");
}

}  // namespace

SentenceFolder read_sentence_folder(const Files& files, const std::string& folder) {
  SentenceFolder result;
  read_modules(files, folder, result);
  const std::string path = join_path(folder, kSentenceFile);
  if (const std::optional<Json> json = read_json(files, path)) {
    const JsonObject config(*json, path);
    if (config.boolean_or("do_lower_case", false)) fail(path, "do_lower_case: false", "true");
  }
  const std::string prompts = join_path(folder, "config_sentence_transformers.json");
  if (const std::optional<Json> json = read_json(files, prompts)) {
    const JsonObject config(*json, prompts);
    if (config.has("default_prompt_name"))
      fail(prompts, "no default_prompt_name", config.string("default_prompt_name"));
  }
  return result;
}

int64_t max_tokens_of_folder(const Files& files, const std::string& folder, int64_t most) {
  const std::string path = join_path(folder, kSentenceFile);
  if (const std::optional<Json> json = read_json(files, path)) {
    const int64_t n = JsonObject(*json, path).integer_or("max_seq_length", 0);
    if (n < 0) fail(path, "max_seq_length: a number of tokens", fmt::to_string(n));
    if (n > 0) return n;
  }
  const std::optional<Json> json = read_json(files, join_path(folder, "tokenizer_config.json"));
  if (!json || !json->is_object()) return 0;
  const Json n = json->value("model_max_length", Json());  // 1e30 where nobody set it
  const bool is_less = n.is_number() && n >= 1 && n < most;
  return is_less ? n.get<int64_t>() : 0;
}

}  // namespace octet
