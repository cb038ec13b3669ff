#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "infer/export.h"

namespace octet {
namespace {

constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kCompanions[] = {
    kGeneration,          "tokenizer.json",      "tokenizer_config.json",
    "tokenizer.model",    "tokenizer.bin",       "tokenizer.tiktoken",
    "qwen.tiktoken",      "vocab.json",          "merges.txt",
    "vocab.bpe",          "encoder.json",        "added_tokens.json",
    "chat_template.json", "chat_template.jinja", "special_tokens_map.json",
};

// The name by which a tokenizer's file of another name is found in a folder; "" where it has its
// own, or is of a kind that no folder of weights has beside them.
std::string_view name_in_folders(std::string_view tokenizer) {
  constexpr std::string_view kNames[] = {"tokenizer.json", "tokenizer.model", "tokenizer.bin",
                                         "tokenizer.tiktoken"};
  const std::string file = file_name(tokenizer);
  if (std::ranges::find(kCompanions, file) != std::end(kCompanions)) return "";
  for (const std::string_view name : kNames) {
    if (file.ends_with(name.substr(name.find('.')))) return name;
  }
  return "";
}

// Where a model's own files may lie, the first first.
std::vector<std::string> folders_of(const Files& files, const ModelSource& source) {
  std::vector<std::string> folders = {source.folder};
  if (source.run && !source.run->model.path.empty()) folders.push_back(source.run->model.path);
  if (!source.tokenizer.empty() && source.tokenizer != "bytes") {
    const bool is_folder = files.exists(source.tokenizer) && files.is_directory(source.tokenizer);
    if (is_folder) {
      folders.push_back(source.tokenizer);
    } else if (name_in_folders(source.tokenizer).empty()) {
      folders.push_back(parent_path(source.tokenizer));
    }
  }
  std::vector<std::string> distinct;
  for (const std::string& folder : folders) {
    if (std::ranges::count(distinct, folder) == 0) distinct.push_back(folder);
  }
  return distinct;
}

// Whether `path` may be copied; says so where something is there that may not.
bool may_copy(const Files& files, const std::string& path, const Log& log) {
  const EntryKind kind = files.entry_kind(path);
  if (kind == EntryKind::none) return false;
  if (kind != EntryKind::file) {
    log.warning("[convert] '{}' is not copied: expected a regular file, got {}", path,
                kind == EntryKind::link ? "a link" : "another kind of entry");
    return false;
  }
  if (const uint64_t n_bytes = files.size(path); n_bytes > kMostCopiedBytes) {
    log.warning("[convert] '{}' is not copied: expected at most {} bytes, got {}", path,
                kMostCopiedBytes, n_bytes);
    return false;
  }
  return true;
}

// From the keys that older files keep in config.json; nothing where there are none.
std::string generation_of_config(const Files& files, const ModelSource& source) {
  const std::string path = join_path(source.folder, "config.json");
  if (!files.exists(path)) return "";
  const Json config = parse_json(files.read_text(path), path);
  Json generation = Json::object();
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (config.contains(key) && !config[key].is_null()) generation[key] = config[key];
  }
  if (generation.empty()) return "";
  generation["_from_model_config"] = true;
  return generation.dump(2) + "\n";
}

}  // namespace

void copy_companions(Files& files, const ModelSource& source, const std::string& folder,
                     const Log& log) {
  std::set<std::string> copied;
  const auto copy = [&](const std::string& path, const std::string& name) {
    if (copied.contains(name) || !may_copy(files, path, log)) return;
    const std::vector<std::byte> bytes = files.read_bytes(path);
    write_atomically(files, join_path(folder, name), [&](FileWriter& out) { out.write(bytes); });
    copied.insert(name);
  };
  if (const std::string name(name_in_folders(source.tokenizer)); !name.empty()) {
    copy(source.tokenizer, name);
  }
  for (const std::string& from : folders_of(files, source)) {
    for (const char* name : kCompanions) copy(join_path(from, name), name);
  }
  if (copied.contains(kGeneration)) return;
  const std::string text = generation_of_config(files, source);
  if (!text.empty()) write_atomically(files, join_path(folder, kGeneration), text);
}

}  // namespace octet
