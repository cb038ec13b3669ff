#include "infer/prompt_file.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "data/json_values.h"
#include "data/text_files.h"

namespace octet {
namespace {

[[noreturn]] void bad_prompt(const std::string& path, int64_t line, std::string_view expected,
                             std::string_view got) {
  throw Error(ErrorCode::bad_data, "[prompts] {}:{}: expected {}, got {}", path, line, expected,
              got);
}

// The list of that key, which may be JSON as text; null where it is missing or empty.
OrderedJson list_of(const OrderedJson& json, const char* key, const std::string& path,
                    int64_t line) {
  const auto at = json.find(key);
  if (at == json.end() || at->is_null()) return nullptr;
  OrderedJson list = *at;
  if (at->is_string()) {
    const auto& text = at->get_ref<const std::string&>();
    if (text.find_first_not_of(" \t\r\n") == text.npos) return nullptr;
    list = parse_ordered_json(text, fmt::format("{}:{}: {}", path, line, key));
  }
  if (!list.is_array()) bad_prompt(path, line, fmt::format("{}: an array", key), list.type_name());
  return list.empty() ? OrderedJson(nullptr) : list;
}

OrderedJson context_of(const OrderedJson& json, const OrderedJson& messages,
                       const std::string& path, int64_t line) {
  if (!messages.is_array()) bad_prompt(path, line, "messages: an array", messages.type_name());
  OrderedJson context = {{"messages", messages}};
  for (const char* key : {"tools", "documents"}) {
    OrderedJson list = list_of(json, key, path, line);
    if (!list.is_null()) context[key] = std::move(list);
  }
  const auto kwargs = json.find("kwargs");
  if (kwargs == json.end() || kwargs->is_null()) return context;
  if (!kwargs->is_object()) bad_prompt(path, line, "kwargs: an object", kwargs->type_name());
  context["kwargs"] = *kwargs;
  return context;
}

// Settings, by the names that servers and libraries have for them.
constexpr std::string_view kSettings[] = {"max_tokens",
                                          "max_new_tokens",
                                          "max_completion_tokens",
                                          "min_tokens",
                                          "temperature",
                                          "top_p",
                                          "top_k",
                                          "min_p",
                                          "typical_p",
                                          "do_sample",
                                          "num_beams",
                                          "repetition_penalty",
                                          "presence_penalty",
                                          "frequency_penalty",
                                          "logit_bias",
                                          "logprobs",
                                          "stop",
                                          "suffix",
                                          "n",
                                          "best_of",
                                          "echo",
                                          "response_format",
                                          "tool_choice"};
constexpr std::string_view kPictures[] = {"image", "images", "audio", "audios", "video", "videos"};
constexpr std::string_view kOfPrompt[] = {"prompt", "seed"};
constexpr std::string_view kOfMessages[] = {"messages", "tools", "documents", "kwargs", "seed"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Other keys than a prompt's, or a conversation's.
OrderedJson others_of(const OrderedJson& json, std::span<const std::string_view> used,
                      const std::string& path, int64_t line) {
  OrderedJson others = OrderedJson::object();
  for (const auto& [key, value] : json.items()) {
    if (value.is_null() || is_one_of(used, key)) continue;
    if (is_one_of(kSettings, key))
      bad_prompt(path, line, "settings as flags, which hold for all prompts", "'" + key + "'");
    if (is_one_of(kPictures, key)) bad_prompt(path, line, "prompts of text", "'" + key + "'");
    const bool is_of_messages = is_one_of(kOfMessages, key) && key != "seed";
    if (is_of_messages && !(value.is_structured() && value.empty()))
      bad_prompt(path, line, "'" + key + "' beside messages", "it beside a prompt");
    if (key == "prompt") bad_prompt(path, line, "the key prompt or messages", "both");
    others[key] = value;
  }
  return others;
}

StoredPrompt prompt_of(const OrderedJson& json, const std::string& path, int64_t line) {
  StoredPrompt prompt;
  prompt.line = line;
  if (json.is_string()) {
    prompt.text = json.get<std::string>();
    return prompt;
  }
  if (!json.is_object()) bad_prompt(path, line, "a text or an object", json.type_name());
  const auto messages = json.find("messages");
  if (messages != json.end() && !messages->is_null()) {
    prompt.context = context_of(json, *messages, path, line);
    prompt.others = others_of(json, kOfMessages, path, line);
  } else if (const auto text = json.find("prompt"); text != json.end() && text->is_string()) {
    prompt.text = text->get<std::string>();
    prompt.others = others_of(json, kOfPrompt, path, line);
  } else {
    bad_prompt(path, line, "the key prompt with a text, or messages",
               text == json.end() ? "neither" : text->type_name());
  }
  if (const auto seed = json.find("seed"); seed != json.end()) {
    const bool is_seed = seed->is_number_unsigned() && seed->get<uint64_t>() <= UINT32_MAX;
    if (!is_seed) bad_prompt(path, line, "seed: an integer from 0 to 4294967295", seed->dump());
    prompt.seed = seed->get<uint32_t>();
  }
  return prompt;
}

// True if a text begins an object, or a list of texts or objects.
bool begins_as_json(std::string_view text) {
  const size_t next = text.find_first_not_of(" \t\r\n", 1);
  if (next == text.npos) return false;
  const char inner = text[next];
  return (text.front() == '{' && (inner == '"' || inner == '}')) ||
         (text.front() == '[' && (inner == '"' || inner == '{'));
}

bool is_json(const std::string& text, const std::string& path) {
  if (path.ends_with(".jsonl") || path.ends_with(".ndjson") || path.ends_with(".json")) return true;
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return false;
  if (begins_as_json(std::string_view(text).substr(begin))) return true;  // if it is broken, too
  try {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const OrderedJson first = parse_ordered_json(text.substr(begin, end - begin), path);
    return first.is_object() || first.is_string() || first.is_array();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::vector<StoredPrompt> read_prompts(const Files& files, const std::string& path) {
  std::vector<StoredPrompt> prompts;
  const std::string all = files.read_stream(path);
  const std::string text(without_byte_order_mark(all));  // no prompt means it
  if (is_json(text, path)) {
    JsonValues values(files, path);
    while (const auto value = values.next()) {
      const std::string where = fmt::format("{}:{}", path, value->line);
      prompts.push_back(prompt_of(parse_ordered_json(value->text, where), path, value->line));
    }
  } else {
    int64_t line = 1;
    for (size_t at = 0; at < text.size(); ++line) {
      const size_t end = std::min(text.find('\n', at), text.size());
      const size_t length = end - at - (end > at && text[end - 1] == '\r' ? 1 : 0);
      if (length > 0) prompts.push_back({text.substr(at, length), nullptr, {}, line});
      at = end + 1;
    }
  }
  if (prompts.empty()) {
    throw Error(ErrorCode::bad_data, "[prompts] {}: expected at least one prompt, got none", path);
  }
  return prompts;
}

}  // namespace octet
