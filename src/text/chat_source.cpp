#include "text/chat_source.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace octet {
namespace {

constexpr std::string_view kOwnNames[] = {
    "tokenizer.json", "tokenizer.model", "tokenizer.bin", "tokenizer.tiktoken", "qwen.tiktoken",
    "vocab.json",     "merges.txt",      "vocab.bpe",     "encoder.json",       "vocab.txt",
    "spiece.model",   "source.spm",      "target.spm"};
constexpr std::string_view kNamesByKind[] = {"tokenizer.json", "tokenizer.model", "tokenizer.bin",
                                             "tokenizer.tiktoken", "vocab.txt"};

// The text of a special token, "" where it is none of those known.
std::string text_of(const Tokenizer& tokenizer, std::optional<int32_t> id,
                    std::span<const std::string_view> known) {
  if (!id) return "";
  std::vector<std::string> texts = {tokenizer.decode(std::span(&*id, 1))};
  texts.insert(texts.end(), known.begin(), known.end());
  for (const std::string& text : texts) {
    if (!text.empty() && tokenizer.special_id(text) == id) return text;
  }
  return "";
}

std::string bos_text(const Tokenizer& tokenizer) {
  constexpr std::string_view kKnown[] = {"<s>", "<|begin_of_text|>", "<bos>", "<|endoftext|>"};
  return text_of(tokenizer, tokenizer.bos(), kKnown);
}

std::string eos_text(const Tokenizer& tokenizer) {
  constexpr std::string_view kKnown[] = {"<|endoftext|>", "</s>",       "<|end_of_text|>",
                                         "<|eot_id|>",    "<|im_end|>", "<eos>"};
  return text_of(tokenizer, tokenizer.eos(), kKnown);
}

// Tokens of the first of the folders that says any; null for a token that is said to be none.
std::optional<OrderedJson> stored_tokens(const Files& files, const ChatQuery& query,
                                         const std::string& name) {
  std::vector<std::string> folders;
  if (const auto folder = folder_of_tokenizer(files, query.tokenizer)) folders.push_back(*folder);
  if (files.exists(name) && files.is_directory(name)) folders.push_back(name);
  if (!query.model.empty()) folders.push_back(query.model);
  for (const std::string& folder : folders) {
    if (auto tokens = special_tokens_of_folder(files, folder)) return tokens;
  }
  return std::nullopt;
}

// With the tokenizer's own in the place of what is not mentioned; where it is `eager`, also of what
// is null or no token.
OrderedJson completed(OrderedJson tokens, const Tokenizer& tokenizer, bool eager) {
  const auto is_token = [&](const OrderedJson& text) {
    return text.is_string() && tokenizer.special_id(text.get<std::string>()).has_value();
  };
  const std::pair<const char*, std::string> own[] = {{"bos_token", bos_text(tokenizer)},
                                                     {"eos_token", eos_text(tokenizer)}};
  for (const auto& [key, text] : own) {
    const bool is_missing = !tokens.contains(key) || (eager && !is_token(tokens[key]));
    if (is_missing && !text.empty()) tokens[key] = text;
  }
  return tokens;
}

std::string chosen_template(const Files& files, const Tokenizer& tokenizer,
                            const ChatQuery& query) {
  if (query.name != "auto") return query.name;
  if (has_chat_template(files, query.model)) return query.model;
  return tokenizer.special_id("<|im_start|>") ? "chatml" : "plain";
}

}  // namespace

ChatTemplates find_chat_templates(const Files& files, const Tokenizer& tokenizer,
                                  const ChatQuery& query) {
  ChatTemplates found{
      .name = chosen_template(files, tokenizer, query), .plain = {}, .with_tools = {}};
  found.plain = find_chat_template(files, found.name, /*has_tools=*/false);
  found.with_tools = find_chat_template(files, found.name, /*has_tools=*/true);
  const bool is_there = files.exists(found.name),
             is_folder = is_there && files.is_directory(found.name);
  const auto stored = stored_tokens(files, query, found.name);
  for (ChatTemplateSource* source : {&found.plain, &found.with_tools}) {
    OrderedJson tokens = stored.value_or(source->special_tokens);
    // A folder's template was written for what its own files say.
    if (!is_folder || !stored) tokens = completed(tokens, tokenizer, /*eager=*/!is_there);
    source->special_tokens = without_nulls(tokens);
  }
  return found;
}

std::span<const std::string_view> tokenizer_file_names() {
  return kOwnNames;
}

std::string tokenizer_name_in_folders(const std::string& path) {
  const std::string file = file_name(path);
  if (std::ranges::find(kOwnNames, file) != std::end(kOwnNames)) return "";
  for (const std::string_view name : kNamesByKind) {
    if (file.ends_with(name.substr(name.find('.')))) return std::string(name);
  }
  return "";
}

std::optional<std::string> folder_of_tokenizer(const Files& files, const std::string& path) {
  if (path.empty() || path == "bytes") return std::nullopt;
  if (files.exists(path) && files.is_directory(path)) return path;
  if (!tokenizer_name_in_folders(path).empty()) return std::nullopt;
  return parent_path(path);
}

std::string stored_text(const ChatTemplates& templates) {
  OrderedJson json = {{"name", templates.name}};
  json["chat_template"] = {{{"name", "default"}, {"template", templates.plain.text}}};
  if (templates.with_tools.text != templates.plain.text) {
    json["chat_template"].push_back(
        {{"name", "tool_use"}, {"template", templates.with_tools.text}});
  }
  json.update(templates.plain.special_tokens);
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

ChatTemplates read_stored_templates(const Files& files, const std::string& path) {
  ChatTemplates stored{.name = path,
                       .plain = find_chat_template(files, path, /*has_tools=*/false),
                       .with_tools = find_chat_template(files, path, /*has_tools=*/true)};
  const OrderedJson json = parse_ordered_json(files.read_text(path), path);
  if (const auto name = json.find("name"); name != json.end() && name->is_string())
    stored.name = name->get<std::string>();
  return stored;
}

}  // namespace octet
