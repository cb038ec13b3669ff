#include <optional>

#include "base/error.h"
#include "text/chat_template.h"
#include "text/tokenizer_folder.h"

namespace octet {
namespace {

// A token is text, an object with its text as `content`, or null: there is none.
void take_tokens(const OrderedJson& config, OrderedJson& tokens) {
  for (const char* name : kSpecialTokenNames) {
    const auto it = config.find(name);
    if (it == config.end()) continue;
    if (it->is_string() || it->is_null()) {
      tokens[name] = *it;
    } else if (it->is_object() && it->contains("content") && (*it)["content"].is_string()) {
      tokens[name] = (*it)["content"];
    }
  }
}

OrderedJson read_object(const Files& files, const std::string& path) {
  OrderedJson json = parse_ordered_json(files.read_text(path), path);
  if (!json.is_object()) {
    throw Error(ErrorCode::bad_data, "[chat] {}: expected an object, got {}", path,
                json.type_name());
  }
  return json;
}

// The template of this name in a list of {name, template}, or null.
const std::string* named(const OrderedJson& list, const char* name) {
  for (const OrderedJson& entry : list) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template")) continue;
    if (entry["name"] == name && entry["template"].is_string()) {
      return entry["template"].get_ptr<const std::string*>();
    }
  }
  return nullptr;
}

std::string template_of(const OrderedJson& config, const std::string& path, bool has_tools) {
  const auto it = config.find("chat_template");
  if (it != config.end() && it->is_string()) return it->get<std::string>();
  if (it != config.end() && it->is_array()) {
    const std::string* tool_use = has_tools ? named(*it, "tool_use") : nullptr;
    const std::string* found = tool_use != nullptr ? tool_use : named(*it, "default");
    if (found != nullptr) return *found;
  }
  throw Error(ErrorCode::bad_data,
              "[chat] {}: expected chat_template to be text or a list of named ones with "
              "'default', got {}",
              path, it == config.end() ? "none" : it->type_name());
}

// Place of the template in older files, where transformers' processors find it before all others.
constexpr const char* kProcessorFile = "processor_config.json";
bool says_template(const Files& files, const std::string& path) {
  if (!files.exists(path)) return false;
  const OrderedJson json = read_object(files, path);
  const auto it = json.find("chat_template");
  return it != json.end() && !it->is_null();
}

std::string folder_template(const Files& files, const std::string& folder, bool has_tools,
                            std::string& where) {
  where = join_path(folder, kProcessorFile);
  if (says_template(files, where)) return template_of(read_object(files, where), where, has_tools);
  const std::string tool_use = join_path(folder, "additional_chat_templates/tool_use.jinja");
  if (has_tools && files.exists(tool_use)) return files.read_text(where = tool_use);
  const std::string plain = join_path(folder, "chat_template.jinja");
  if (files.exists(plain)) return files.read_text(where = plain);
  for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
    where = join_path(folder, name);
    if (files.exists(where)) return template_of(read_object(files, where), where, has_tools);
  }
  throw Error(ErrorCode::bad_data,
              "[chat] {}: expected chat_template.jinja, chat_template.json or "
              "tokenizer_config.json, got none",
              folder);
}

}  // namespace

OrderedJson without_nulls(const OrderedJson& tokens) {
  OrderedJson told = OrderedJson::object();
  for (const auto& [name, text] : tokens.items()) {
    if (!text.is_null()) told[name] = text;
  }
  return told;
}

bool has_chat_template(const Files& files, const std::string& folder) {
  if (folder.empty() || !files.exists(folder) || !files.is_directory(folder)) return false;
  for (const char* name : {"chat_template.jinja", "chat_template.json"}) {
    if (files.exists(join_path(folder, name))) return true;
  }
  return says_template(files, join_path(folder, kProcessorFile)) ||
         says_template(files, join_path(folder, "tokenizer_config.json"));
}

// Tokens as transformers reads them: a special_tokens_map.json counts, and goes before, where
// tokenizer_config.json has no added_tokens_decoder.
std::optional<OrderedJson> special_tokens_of_folder(const Files& files, const std::string& folder) {
  const std::string config = join_path(folder, "tokenizer_config.json");
  const std::string map = join_path(folder, "special_tokens_map.json");
  const bool has_config = files.exists(config), has_map = files.exists(map);
  if (!has_config && !has_map) return std::nullopt;
  OrderedJson tokens = OrderedJson::object();
  OrderedJson json = OrderedJson::object();
  if (has_config) json = read_object(files, config);
  take_tokens(json, tokens);
  if (has_map && !json.contains("added_tokens_decoder"))
    take_tokens(read_object(files, map), tokens);
  return tokens;
}

ChatTemplateSource find_chat_template(const Files& files, const std::string& path, bool has_tools) {
  ChatTemplateSource source;
  source.where = path;
  if (!files.exists(path) && !built_in_chat_template(path).empty()) {
    source.text = built_in_chat_template(path);
    return source;
  }
  if (!files.exists(path)) {
    throw Error(
        ErrorCode::invalid_argument,
        "[chat] expected a chat template (`chatml`, `plain`, a file or a model folder), got "
        "'{}', which is not there",
        path);
  }
  if (files.is_directory(path)) {
    source.text = folder_template(files, path, has_tools, source.where);
    if (const auto tokens = special_tokens_of_folder(files, path))
      source.special_tokens = without_nulls(*tokens);
    return source;
  }
  if (path.ends_with(".json")) {
    const OrderedJson config = read_object(files, path);
    source.text = template_of(config, path, has_tools);
    OrderedJson tokens = OrderedJson::object();
    take_tokens(config, tokens);
    source.special_tokens = without_nulls(tokens);
    return source;
  }
  source.text = files.read_text(path);
  return source;
}

}  // namespace octet
