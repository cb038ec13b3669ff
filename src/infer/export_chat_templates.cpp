// The chat template of an exported run: what it was trained with, as transformers finds it.
#include <string>
#include <utility>

#include "base/error.h"
#include "base/ordered_json.h"
#include "infer/export.h"
#include "infer/model_texts.h"

namespace octet {
namespace {

constexpr const char* kToolUse = "tool_use.jinja";

// Special tokens that a template's text names and the folder does not say.
OrderedJson missing_tokens(const Files& files, const std::string& folder,
                           const ChatTemplates& trained) {
  const OrderedJson said = special_tokens_of_folder(files, folder).value_or(OrderedJson::object());
  OrderedJson missing = OrderedJson::object();
  for (const auto& [name, text] : trained.plain.special_tokens.items()) {
    const bool is_named = trained.plain.text.find(name) != std::string::npos ||
                          trained.with_tools.text.find(name) != std::string::npos;
    if (is_named && (!said.contains(name) || said[name] != text)) missing[name] = text;
  }
  return missing;
}

// True if a reader of the folder finds the trained templates. chat_template.json is read by few.
bool has_templates(const Files& files, const std::string& folder, const ChatTemplates& trained) {
  if (!has_chat_template(files, folder)) return false;
  if (files.exists(join_path(folder, "chat_template.json")) &&
      !files.exists(join_path(folder, "chat_template.jinja")))
    return false;
  return find_chat_template(files, folder, /*has_tools=*/false).text == trained.plain.text &&
         find_chat_template(files, folder, /*has_tools=*/true).text == trained.with_tools.text;
}

void remove_templates(Files& files, const std::string& folder) {
  for (const char* name : {"chat_template.json", "chat_template.jinja"}) {
    const std::string path = join_path(folder, name);
    if (files.exists(path)) files.remove(path);
  }
  const std::string named = join_path(folder, kNamedTemplates);
  if (!files.exists(named)) return;
  for (const DirectoryEntry& entry : files.list(named)) files.remove(join_path(named, entry.name));
  files.remove(named);
}

void write_templates(Files& files, const std::string& folder, const ChatTemplates& trained) {
  remove_templates(files, folder);
  write_atomically(files, join_path(folder, "chat_template.jinja"), trained.plain.text);
  if (trained.with_tools.text == trained.plain.text) return;
  const std::string named = join_path(folder, kNamedTemplates);
  files.create_directories(named);
  write_atomically(files, join_path(named, kToolUse), trained.with_tools.text);
}

}  // namespace

// By the library's own parser, which keeps numbers of any size as numbers.
OrderedJson read_tokenizer_config(const Files& files, const std::string& path) {
  if (!files.exists(path)) return OrderedJson::object();
  OrderedJson json = OrderedJson::parse(files.read_text(path), nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  throw Error(ErrorCode::bad_data, "[convert] {}: expected a JSON object, got {}", path,
              json.is_discarded() ? "no JSON" : json.type_name());
}

void put_chat_templates(Files& files, const ModelSource& source, const std::string& folder,
                        const Log& log) {
  if (!is_trained_on_chat(source)) return;
  ChatTemplates trained;
  try {
    trained = chat_templates(files, source);
  } catch (const Error& error) {  // of a run that kept none, and whose files have moved
    log.warning("[convert] no chat template is written: {}", error.what());
    return;
  }
  const bool is_there = has_templates(files, folder, trained);
  if (!is_there) {
    write_templates(files, folder, trained);
    log.info("chat_template.jinja is '{}', which the run was trained with", trained.name);
  }
  const std::string path = join_path(folder, "tokenizer_config.json");
  OrderedJson config = read_tokenizer_config(files, path);
  const OrderedJson missing = missing_tokens(files, folder, trained);
  const bool is_stale = !is_there && config.erase("chat_template") > 0;
  if (!is_stale && missing.empty()) return;
  config.update(missing);
  write_atomically(files, path, config.dump(2) + "\n");
}

}  // namespace octet
