#include "base/output_folder.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/gguf.h"

namespace octet {
namespace {

// File names that tell a model's folder, and a run's.
constexpr std::array<std::string_view, 7> kMarks = {
    "config.json",     "config.yaml",    "metrics.jsonl", "ckpt",
    "tokenizer.model", "tokenizer.json", "vocab.json"};

bool is_mark(std::string_view name) {
  return std::ranges::find(kMarks, name) != kMarks.end() || name.ends_with(".safetensors") ||
         is_gguf_name(name);
}

}  // namespace

void check_not_above(const Files& files, std::string_view option, const std::string& folder) {
  if (!files.holds_current_folder(folder)) return;
  throw Error(ErrorCode::invalid_argument,
              "{}: expected a folder for this command's files, got '{}', which holds the current "
              "folder",
              option, folder);
}

void check_output_folder(const Files& files, std::string_view option, const std::string& folder) {
  if (!files.exists(folder)) return;
  check_not_above(files, option, folder);
  if (!files.is_directory(folder)) {
    throw Error(ErrorCode::invalid_argument, "{}: expected a folder, got the file '{}'", option,
                folder);
  }
  for (const DirectoryEntry& entry : files.list(folder)) {
    if (!is_mark(entry.name)) continue;
    throw Error(ErrorCode::invalid_argument,
                "{}: expected a folder for this command's files, got '{}', which holds a model or "
                "a run ('{}'): choose another folder",
                option, folder, entry.name);
  }
}

void check_output_file(const Files& files, std::string_view option, const std::string& path,
                       std::string_view begin) {
  if (path.starts_with("/dev/") || path.starts_with("/proc/")) return;
  if (path == "-") {
    throw Error(ErrorCode::invalid_argument,
                "{}: expected a file's name, got '-' (/dev/stdout is standard output)", option);
  }
  if (const std::string folder = parent_path(path); !files.exists(folder)) {
    throw Error(ErrorCode::invalid_argument,
                "{}: expected a name in a folder that is there, got '{}'", option, path);
  }
  const EntryKind kind = files.kind(path);
  if (kind != EntryKind::file && kind != EntryKind::directory) return;
  if (kind == EntryKind::file) {
    const auto file = files.open(path);
    std::string first(std::min<uint64_t>(file->size(), begin.size()), '\0');
    file->read_at(0, first);
    if (first.empty() || first == begin) return;
  }
  throw Error(ErrorCode::invalid_argument,
              "{}: expected a name that is free or of an output of this command, got '{}': choose "
              "another name",
              option, path);
}

void throw_not_replaced(std::string_view option, const std::string& path) {
  throw Error(ErrorCode::invalid_argument,
              "{}: expected a name that is free, got '{}', which this command did not write: "
              "choose another folder",
              option, path);
}

}  // namespace octet
