#include "io/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <future>
#include <new>
#include <utility>

#include "base/error.h"
#include "io/checkpoint_marker.h"

namespace octet {
namespace {

constexpr std::string_view kModel = "model.safetensors", kOptim = "optim.safetensors";
constexpr std::string_view kManifest = "manifest.json", kComplete = "COMPLETE";
constexpr std::string_view kTemporary = ".tmp", kSetAside = ".old";

// "step-000100" or "step-000100.old"; nothing for other names.
std::optional<int64_t> step_of(std::string_view name) {
  if (name.substr(0, 5) != "step-") return std::nullopt;
  name.remove_prefix(5);
  if (name.ends_with(kSetAside)) name.remove_suffix(kSetAside.size());
  int64_t step = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), step);
  if (name.size() < 6 || parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) {
    return std::nullopt;
  }
  return step;
}

KeyValues dtypes_of(const std::vector<TensorSource>& tensors) {
  KeyValues dtypes;
  for (const TensorSource& tensor : tensors) {
    const auto& dtype = tensor.decl.dtype;
    dtypes[tensor.decl.name] = dtype ? dtype_name(*dtype) : safe_dtype_name(tensor.decl.stored);
  }
  return dtypes;
}

void check_tensors(const SafetensorsReader& reader, const KeyValues& expected) {
  for (const auto& [name, dtype] : expected) {
    const StoredTensor& tensor = reader.at(name);
    const auto got = tensor.dtype ? dtype_name(*tensor.dtype) : safe_dtype_name(tensor.stored);
    if (got != dtype) {
      throw Error(ErrorCode::bad_data, "[checkpoint] {}: '{}' must be {}, got {}", reader.path(),
                  name, dtype, got);
    }
  }
  if (reader.tensors().size() != expected.size()) {
    throw Error(ErrorCode::bad_data, "[checkpoint] {}: expected {} tensors, got {}", reader.path(),
                expected.size(), reader.tensors().size());
  }
}

// A folder that somebody gave another number holds another step than it says. What is no manifest
// is found when it is loaded.
std::string wrong_name(const Files& files, const std::string& path) {
  const std::string manifest_path = join_path(path, kManifest);
  const std::optional<int64_t> named = step_of(file_name(path));
  try {
    const Manifest manifest = parse_manifest(files.read_text(manifest_path), manifest_path);
    if (!named || manifest.step == *named) return "";
    return fmt::format("[checkpoint] '{}': expected step {} as its name says, got step {}", path,
                       *named, manifest.step);
  } catch (const std::exception&) {
    return "";
  }
}

// The marker goes first, so that a half-removed checkpoint never looks whole.
void remove_checkpoint(Files& files, const std::string& path) {
  const std::string marker = join_path(path, kComplete);
  if (files.exists(marker)) files.remove(marker);
  files.remove_tree(path);
}

}  // namespace

Checkpoints::Checkpoints(Files& files, std::string folder, Log log)
    : files_(files), folder_(std::move(folder)), log_(std::move(log)) {}

void Checkpoints::write_files(const CheckpointContents& contents, const std::string& folder,
                              std::string& marker) {
  if (files_.exists(folder)) files_.remove_tree(folder);
  files_.create_directories(folder);
  Manifest manifest = contents.manifest;
  manifest.model_tensors = dtypes_of(contents.model);
  manifest.optim_tensors = dtypes_of(contents.optim);
  Marker marks;
  const auto write = [&](std::string_view name, const std::function<void(FileWriter&)>& body) {
    marks[std::string(name)] = write_marked(files_, join_path(folder, name), body);
  };
  write(kModel, [&](FileWriter& out) { write_safetensors(out, contents.model); });
  write(kOptim, [&](FileWriter& out) { write_safetensors(out, contents.optim); });
  write(kManifest, [&](FileWriter& out) { out.write(as_bytes(manifest_to_json(manifest))); });
  files_.sync_directory(folder);
  marker = marker_to_json(marks);
}

void Checkpoints::put_in_place(const std::string& temporary, const std::string& path) {
  if (files_.exists(path)) {
    const std::string aside = path + std::string(kSetAside);
    if (problem_of(path).empty()) {
      if (files_.exists(aside)) remove_checkpoint(files_, aside);
      files_.rename(path, aside);
    } else {
      remove_checkpoint(files_, path);
    }
  }
  files_.rename(temporary, path);
  files_.sync_directory(folder_);
}

void Checkpoints::discard(const std::string& temporary) {
  try {
    if (files_.exists(temporary)) files_.remove_tree(temporary);
  } catch (const Error&) {  // the first failure is the one to report
  }
}

void Checkpoints::save(const CheckpointContents& contents, int keep) {
  CHECK(keep >= 1 && contents.manifest.step >= 0);
  const std::string path = join_path(folder_, fmt::format("step-{:06}", contents.manifest.step));
  const std::string temporary = path + std::string(kTemporary);
  try {
    files_.create_directories(folder_);
    std::string marker;
    write_files(contents, temporary, marker);
    put_in_place(temporary, path);
    write_atomically(files_, join_path(path, kComplete), marker);
    if (const std::string problem = problem_of(path); !problem.empty()) {
      throw Error(ErrorCode::io, problem);
    }
  } catch (const Error& error) {
    discard(temporary);
    std::string kept = "there is no whole checkpoint";
    for (const CheckpointEntry& entry : list()) {
      if (entry.is_whole()) kept = fmt::format("the newest whole checkpoint is '{}'", entry.path);
    }
    throw Error(error.code(), "[checkpoint] step {} was not saved: {}; {}", contents.manifest.step,
                error.what(), kept);
  }
  try {
    prune(keep, path);
  } catch (const Error& error) {  // the new checkpoint is whole: going on is right
    log_.warning("[checkpoint] old checkpoints stay: {}", error.what());
  }
}

void Checkpoints::prune(int keep, const std::string& just_saved) {
  const std::vector<CheckpointEntry> entries = list();
  int n_newer_whole = 0;
  int64_t last_step = -1;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const bool is_duplicate = n_newer_whole > 0 && entry->step == last_step;
    const bool is_old = entry->is_whole() ? n_newer_whole >= keep : n_newer_whole > 0;
    if ((is_duplicate || is_old) && entry->path != just_saved) {
      remove_checkpoint(files_, entry->path);
    } else if (entry->is_whole()) {
      ++n_newer_whole;
      last_step = entry->step;
    }
  }
  for (const DirectoryEntry& entry : files_.list(folder_)) {
    const bool is_left_over =
        entry.kind == EntryKind::directory && entry.name.ends_with(kTemporary);
    if (is_left_over) files_.remove_tree(join_path(folder_, entry.name));
  }
}

std::string Checkpoints::problem_of(const std::string& path) const {
  const std::string marker_path = join_path(path, kComplete);
  if (!files_.exists(marker_path)) return "it has no COMPLETE marker";
  try {
    const Marker marker = read_marker(files_, marker_path);
    for (const std::string_view name : {kModel, kOptim, kManifest}) {
      if (!marker.contains(std::string(name))) return fmt::format("COMPLETE lacks {}", name);
    }
    for (const auto& [name, mark] : marker) verify_size(files_, join_path(path, name), mark);
    return wrong_name(files_, path);
  } catch (const Error& error) {
    return error.what();
  }
}

std::vector<CheckpointEntry> Checkpoints::list() const {
  std::vector<CheckpointEntry> entries;
  if (!files_.exists(folder_)) return entries;
  for (const DirectoryEntry& entry : files_.list(folder_)) {
    const std::optional<int64_t> step = step_of(entry.name);
    if (!step || entry.kind != EntryKind::directory) continue;
    const std::string path = join_path(folder_, entry.name);
    entries.push_back({*step, path, problem_of(path)});
  }
  // Of one step, the one that was set aside comes first, so that the replacement is preferred.
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.step != b.step ? a.step < b.step : a.path > b.path;
  });
  return entries;
}

void Checkpoints::verify(const std::string& path) const {
  // All files at a time: one stream alone is slower than most disks. Where no thread can be made
  // they are read one after the other.
  constexpr auto kInAThread = std::launch::async | std::launch::deferred;
  std::vector<std::future<void>> verified;
  for (const auto& [name, mark] : read_marker(files_, join_path(path, kComplete))) {
    verified.push_back(std::async(kInAThread, [this, file = join_path(path, name), mark = mark] {
      verify_hash(files_, file, mark);
    }));
  }
  for (std::future<void>& one : verified) one.get();
}

LoadedCheckpoint Checkpoints::open(const std::string& checkpoint_path) const {
  if (const std::string problem = problem_of(checkpoint_path); !problem.empty()) {
    throw Error(ErrorCode::bad_data, "[checkpoint] '{}' is not whole: {}", checkpoint_path,
                problem);
  }
  verify(checkpoint_path);
  const std::string manifest_path = join_path(checkpoint_path, kManifest);
  LoadedCheckpoint loaded{checkpoint_path,
                          parse_manifest(files_.read_text(manifest_path), manifest_path),
                          SafetensorsReader::open(files_, join_path(checkpoint_path, kModel)),
                          SafetensorsReader::open(files_, join_path(checkpoint_path, kOptim))};
  check_tensors(loaded.model, loaded.manifest.model_tensors);
  check_tensors(loaded.optim, loaded.manifest.optim_tensors);
  return loaded;
}

LoadedCheckpoint Checkpoints::load(const std::string& checkpoint_path) const {
  try {
    return open(checkpoint_path);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::device, "[checkpoint] '{}': out of memory while it was read",
                checkpoint_path);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::io, "[checkpoint] cannot read '{}': {}", checkpoint_path, error.what());
  }
}

std::optional<LoadedCheckpoint> Checkpoints::newest() const {
  const std::vector<CheckpointEntry> entries = list();
  int n_damaged = 0;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    // A marker is written last: what does not fit it was damaged later.
    n_damaged += files_.exists(join_path(entry->path, kComplete)) ? 1 : 0;
    if (!entry->is_whole()) {
      log_.warning("[checkpoint] skipping '{}': {}", entry->path, entry->problem);
      continue;
    }
    try {
      return load(entry->path);
    } catch (const Error& error) {
      log_.warning("[checkpoint] skipping '{}': {}", entry->path, error.what());
    }
  }
  if (n_damaged > 0) {
    throw Error(ErrorCode::bad_data,
                "[checkpoint] '{}': expected a checkpoint that can be read, got {} that cannot",
                folder_, n_damaged);
  }
  return std::nullopt;
}

}  // namespace octet
