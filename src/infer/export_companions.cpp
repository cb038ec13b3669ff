#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/gguf.h"
#include "base/json.h"
#include "infer/export.h"
#include "infer/export_tokenizer.h"
#include "infer/image_transforms.h"
#include "infer/import_gguf.h"
#include "infer/sentence_folder.h"
#include "text/chat_source.h"

namespace octet {
namespace {

constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kCompanions[] = {kGeneration, kImageProcessor, kProcessor,
                                       "chat_template.json", "chat_template.jinja"};
// Files that readers of a tokenizer.json, a SentencePiece model and a vocab.txt of any name ask of
// its folder.
constexpr const char* kBesideVocabulary[] = {"tokenizer_config.json", "added_tokens.json",
                                             "special_tokens_map.json"};

// Folder of the tokenizer, of a run the one that it was trained with, which need not be its
// model's; nothing where that is bytes, or a file whose folder is another's.
std::optional<std::string> tokenizer_folder(const Files& files, const ModelSource& source) {
  if (is_gguf_name(source.tokenizer)) return std::nullopt;
  return folder_of_tokenizer(files, source.tokenizer);
}

// Folders in which a model's own files may lie, the first first.
std::vector<std::string> folders_of(const Files& files, const ModelSource& source) {
  std::vector<std::string> folders = {source.folder};
  if (!source.weights.adapter.empty()) folders.insert(folders.begin(), source.weights.adapter);
  if (source.run && !source.run->model.path.empty()) folders.push_back(source.run->model.path);
  if (const auto folder = tokenizer_folder(files, source)) folders.push_back(*folder);
  std::vector<std::string> distinct;
  for (const std::string& folder : folders) {
    if (std::ranges::count(distinct, folder) == 0) distinct.push_back(folder);
  }
  return distinct;
}

// True if a link leads to a file of the hub's cache, MODEL/blobs/HASH beside MODEL/snapshots, as
// all files of a snapshot do. Others may lead to what is nobody's to publish.
bool is_cached(const Files& files, const std::string& path) {
  if (files.kind(path) != EntryKind::file) return false;
  const std::string blobs = parent_path(files.write_target(path));
  return file_name(blobs) == "blobs" &&
         files.is_directory(join_path(parent_path(blobs), "snapshots"));
}

// True if `path` may be copied; says so where something is there that may not.
bool may_copy(const Files& files, const std::string& path, const Log& log) {
  const EntryKind kind = files.entry_kind(path);
  if (kind == EntryKind::none) return false;
  const bool is_cached_link = kind == EntryKind::link && is_cached(files, path);
  if (kind != EntryKind::file && !is_cached_link) {
    log.warning("[convert] '{}' is not copied: expected a regular file, got {}", path,
                kind == EntryKind::link ? "a link" : "another kind of entry");
    return false;
  }
  if (const uint64_t n_bytes = files.size(path); n_bytes > kMaxCopiedBytes) {
    log.warning("[convert] '{}' is not copied: expected at most {} bytes, got {}", path,
                kMaxCopiedBytes, n_bytes);
    return false;
  }
  return true;
}

constexpr const char* kIds[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

// In a generation_config.json that was copied: its ids are those of the folder's tokenizer.
void put_own_ids(Files& files, const ModelSource& source, const std::string& path) {
  Json generation = parse_json(files.read_text(path), path);
  const Json ids = ids_of_tokenizer(files, source);
  for (const char* key : kIds) {
    generation.erase(key);
    if (!ids[key].is_null()) generation[key] = ids[key];
  }
  write_atomically(files, path, generation.dump(2) + "\n");
}

// From the keys that older files keep in config.json; nothing where there are none.
std::string generation_of_config(const Files& files, const ModelSource& source) {
  const std::string path = join_path(source.folder, "config.json");
  if (!files.exists(path)) return "";
  const Json config = parse_json(files.read_text(path), path);
  Json generation = Json::object();
  for (const char* key : kIds) {
    if (config.contains(key) && !config[key].is_null()) generation[key] = config[key];
  }
  if (generation.empty()) return "";
  generation["_from_model_config"] = true;
  return generation.dump(2) + "\n";
}

std::string text_of_image_token(const Files& files, const ModelSource& source) {
  const auto id = static_cast<int32_t>(source.spec.image_token);
  if (source.tokenizer.empty()) return "<image>";
  const auto tokenizer = make_tokenizer(files, source.tokenizer);
  return id < tokenizer->vocab_size() ? tokenizer->decode(std::span(&id, 1)) : "<image>";
}

// additional_chat_templates/NAME.jinja of a folder.
std::vector<std::string> named_templates(const Files& files, const std::string& folder) {
  std::vector<std::string> names;
  const std::string more = join_path(folder, kNamedTemplates);
  if (!files.exists(more) || !files.is_directory(more)) return names;
  for (const DirectoryEntry& entry : files.list(more)) {
    if (entry.name.ends_with(".jinja")) names.push_back(join_path(kNamedTemplates, entry.name));
  }
  return names;
}

}  // namespace

bool copy_companion(Files& files, const std::string& from, const std::string& to, const Log& log) {
  if (!may_copy(files, from, log)) return false;
  const std::vector<std::byte> bytes = files.read_bytes(from);
  files.create_directories(parent_path(to));
  write_atomically(files, to, [&](FileWriter& out) { out.write(bytes); });
  return true;
}

void copy_companions(Files& files, const ModelSource& source, const std::string& folder,
                     const Log& log) {
  std::set<std::string> copied;
  const auto copy = [&](const std::string& path, const std::string& name) {
    if (copied.contains(name)) return;
    if (copy_companion(files, path, join_path(folder, name), log)) copied.insert(name);
  };
  if (const std::string name = tokenizer_name_in_folders(source.tokenizer);
      !source.tokenizer.empty() && !name.empty()) {
    copy(source.tokenizer, name);
    const bool reads_beside = name != "tokenizer.bin" && name != "tokenizer.tiktoken";
    for (const char* beside : kBesideVocabulary) {
      if (reads_beside) copy(join_path(parent_path(source.tokenizer), beside), beside);
    }
  }
  const auto own = tokenizer_folder(files, source);
  const bool is_any = source.tokenizer.empty() ||
                      (!source.run && (source.weights.adapter.empty() || own == source.folder));
  for (const std::string& from : folders_of(files, source)) {
    for (const char* name : kCompanions) {
      if (name != kProcessor || !source.run) copy(join_path(from, name), name);
    }
    if (is_any || from == own) {
      for (const std::string_view name : tokenizer_file_names())
        copy(join_path(from, name), std::string(name));
      for (const char* name : kBesideVocabulary) copy(join_path(from, name), name);
    }
    for (const std::string& name : named_templates(files, from)) copy(join_path(from, name), name);
  }
  put_tokenizer(files, source, folder, log);
  put_sentence_files(files, source, folder, log);
  put_chat_templates(files, source, folder, log);
  const ModelDef& def = model_def(source.spec.kind);
  if (source.run && (!def.reads_text || def.sees_pictures))
    write_atomically(files, join_path(folder, kImageProcessor),
                     image_processor_text(source.run->data.images, source.spec));
  if (source.run && def.sees_pictures)
    write_atomically(files, join_path(folder, kProcessor),
                     processor_text(source.spec, text_of_image_token(files, source)));
  const std::string generation = join_path(folder, kGeneration);
  const bool has_own = has_own_tokenizer(source);
  if (copied.contains(kGeneration)) {
    if (has_own) put_own_ids(files, source, generation);
  } else if (!has_own) {
    const std::string text = generation_of_config(files, source);
    if (!text.empty()) write_atomically(files, generation, text);
  }
}

}  // namespace octet
