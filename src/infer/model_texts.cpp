#include "infer/model_texts.h"

#include <algorithm>

#include "base/error.h"
#include "base/ordered_json.h"
#include "infer/export.h"
#include "infer/sentence_folder.h"
#include "text/chat_template.h"

namespace octet {
namespace {

constexpr const char* kKeptChat = "chat.json";
constexpr const char* kGenerationFile = "generation_config.json";
constexpr const char* kConfigFile = "config.json";
constexpr const char* kEndKey = "eos_token_id";

int32_t id_of(const OrderedJson& value, const std::string& path) {
  if (value.is_number_integer()) {
    const auto id = value.get<int64_t>();
    if (id >= 0 && id <= INT32_MAX) return static_cast<int32_t>(id);
  }
  throw Error(ErrorCode::bad_data,
              "[model] {}: {}: expected a token's id or a list of such, got {}", path, kEndKey,
              json_line(value));
}

std::vector<int32_t> stored_ends(const Files& files, const std::string& path) {
  if (!files.exists(path)) return {};
  const OrderedJson json = parse_ordered_json(files.read_text(path), path);
  if (!json.is_object()) {
    throw Error(ErrorCode::bad_data, "[model] {}: expected an object, got {}", path,
                json.type_name());
  }
  const auto at = json.find(kEndKey);
  if (at == json.end() || at->is_null()) return {};
  std::vector<int32_t> ids;
  if (!at->is_array()) return {id_of(*at, path)};
  for (const OrderedJson& id : *at) ids.push_back(id_of(id, path));
  return ids;
}

// End tokens of the first file that says any, and the tokenizer's.
std::vector<int32_t> first_ends(const Files& files, const std::vector<std::string>& paths,
                                const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (size_t i = 0; ids.empty() && i < paths.size(); ++i) ids = stored_ends(files, paths[i]);
  if (const auto eos = tokenizer.eos()) ids.push_back(*eos);
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

bool renders_chat(const RunConfig& config) {
  return config.data.chat.chat_template != "none";
}

}  // namespace

ChatQuery chat_query(const RunConfig& config) {
  return {.name = renders_chat(config) ? config.data.chat.chat_template : "auto",
          .model = config.model.path,
          .tokenizer = config.data.tokenizer};
}

ChatTemplates chat_templates(const Files& files, const ModelSource& source,
                             const Tokenizer& tokenizer, const std::string& name) {
  const std::string& adapter = source.weights.adapter;
  const bool is_of_adapter = !adapter.empty() && has_chat_template(files, adapter);
  ChatQuery query{.name = name,
                  .model = is_of_adapter ? adapter : source.folder,
                  .tokenizer = source.tokenizer};
  if (!source.run) return find_chat_templates(files, tokenizer, query);
  const std::string kept = join_path(source.folder, kKeptChat);
  if (name == "auto" && files.exists(kept)) return read_stored_templates(files, kept);
  query = chat_query(*source.run);
  query.tokenizer = source.tokenizer;
  if (name != "auto") query.name = name;
  if (query.name == "auto" && !query.model.empty() && !files.exists(query.model)) {
    throw Error(ErrorCode::bad_data,
                "[chat] '{}': expected the folder of the run's model with its chat template "
                "(another: --template), got none",
                query.model);
  }
  return find_chat_templates(files, tokenizer, query);
}

ChatTemplates chat_templates(const Files& files, const ModelSource& source) {
  const std::string kept = join_path(source.folder, kKeptChat);
  if (source.run && files.exists(kept)) return read_stored_templates(files, kept);
  const auto tokenizer = make_tokenizer(files, source.tokenizer);
  return chat_templates(files, source, *tokenizer);
}

bool is_trained_on_chat(const ModelSource& source) {
  return source.run && renders_chat(*source.run);
}

std::vector<int32_t> stop_tokens(const Files& files, const ModelSource& source,
                                 const Tokenizer& tokenizer) {
  std::vector<std::string> paths = {join_path(source.folder, kGenerationFile)};
  if (!source.weights.adapter.empty())
    paths.insert(paths.begin(), join_path(source.weights.adapter, kGenerationFile));
  if (source.run && !source.run->model.path.empty())
    paths.push_back(join_path(source.run->model.path, kGenerationFile));
  paths.push_back(join_path(source.folder, kConfigFile));
  return first_ends(files, paths, tokenizer);
}

std::vector<int32_t> stop_tokens(const Files& files, const RunConfig& config,
                                 const Tokenizer& tokenizer) {
  const std::string& folder = config.model.path;
  if (folder.empty()) return first_ends(files, {}, tokenizer);
  return first_ends(files, {join_path(folder, kGenerationFile), join_path(folder, kConfigFile)},
                    tokenizer);
}

bool has_model_texts(const Files& files, const std::string& run) {
  return files.exists(join_path(run, kKeptChat)) || files.exists(join_path(run, kGenerationFile));
}

void keep_model_texts(Files& files, const RunConfig& config, const Log& log) {
  if (renders_chat(config)) {
    const auto tokenizer = make_tokenizer(files, config.data.tokenizer);
    const ChatTemplates found = find_chat_templates(files, *tokenizer, chat_query(config));
    write_atomically(files, join_path(config.out, kKeptChat), stored_text(found));
  }
  if (!config.model.path.empty())
    copy_companion(files, join_path(config.model.path, kGenerationFile),
                   join_path(config.out, kGenerationFile), log);
  keep_sentence_files(files, config.model.path, config.out, log);
}

}  // namespace octet
