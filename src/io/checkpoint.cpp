#include "io/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <future>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/temporary_file.h"
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

// The marker goes first, so that a half-removed checkpoint never looks whole. What else lies in the
// folder is somebody's, and stays with it.
void remove_checkpoint(Files& files, const std::string& path) {
  for (const std::string_view name : {kComplete, kModel, kOptim, kManifest}) {
    const EntryKind kind = files.entry_kind(join_path(path, name));
    if (kind == EntryKind::file || kind == EntryKind::link) files.remove(join_path(path, name));
  }
  remove_left_overs(files, path, kComplete);
  if (files.list(path).empty()) files.remove(path);
}

// Where none of its files is there, it is a folder of something else; an empty one is what a
// removal left that did not come to its end.
bool holds_part_of_checkpoint(const Files& files, const std::string& path) {
  if (!files.is_directory(path)) return false;
  if (files.list(path).empty()) return true;
  const std::string_view names[] = {kComplete, kModel, kOptim, kManifest};
  return std::ranges::any_of(names, [&](std::string_view name) {
    return files.entry_kind(join_path(path, name)) != EntryKind::none;
  });
}

// "step-000100.tmp" of earlier versions, "step-000100.PID-RANDOM.tmp" of a process that has ended.
bool is_left_over_save(std::string_view name) {
  if (!name.ends_with(kTemporary)) return false;
  const std::string_view step = name.substr(0, name.find('.'));
  if (!step_of(step)) return false;
  return name.size() == step.size() + kTemporary.size() || is_left_over(name, step);
}

}  // namespace

Checkpoints::Checkpoints(Files& files, std::string folder, Log log)
    : files_(files), folder_(std::move(folder)), log_(std::move(log)) {}

void Checkpoints::write_files(const CheckpointContents& contents, const std::string& folder,
                              std::string& marker) {
  files_.create_directory(folder);
  Manifest manifest = contents.manifest;
  manifest.model_tensors = dtypes_of(contents.model);
  manifest.optim_tensors = dtypes_of(contents.optim);
  Marker marks;
  const auto write = [&](std::string_view name, const std::function<void(FileWriter&)>& body) {
    marks[std::string(name)] = write_marked(files_, join_path(folder, name), body);
  };
  write(kModel,
        [&](FileWriter& out) { write_safetensors(out, contents.model, contents.model_metadata); });
  write(kOptim, [&](FileWriter& out) { write_safetensors(out, contents.optim); });
  write(kManifest, [&](FileWriter& out) { out.write(as_bytes(manifest_to_json(manifest))); });
  files_.sync_directory(folder);
  marker = marker_to_json(marks);
}

// What is not ours moves to a name of its own.
void Checkpoints::free_name(const std::string& path) {
  if (files_.entry_kind(path) == EntryKind::directory) remove_checkpoint(files_, path);
  if (files_.entry_kind(path) == EntryKind::none) return;
  std::string kept = temporary_name(path);
  kept.replace(kept.size() - kTemporary.size(), kTemporary.size(), ".kept");
  files_.rename(path, kept);
  log_.warning("[checkpoint] '{}' is no checkpoint of this run; it is now '{}'", path, kept);
}

void Checkpoints::put_in_place(const std::string& temporary, const std::string& path) {
  if (files_.entry_kind(path) != EntryKind::none) {
    if (problem_of(path).empty()) {
      const std::string aside = path + std::string(kSetAside);
      free_name(aside);
      files_.rename(path, aside);
    } else {
      free_name(path);
    }
  }
  files_.rename(temporary, path);
  files_.sync_directory(folder_);
}

// Where the folder was made, all in it is ours.
void Checkpoints::discard(const std::string& temporary) {
  try {
    if (files_.exists(temporary)) remove_checkpoint(files_, temporary);
  } catch (const Error&) {  // the first failure is the one to report
  }
}

std::string Checkpoints::what_is_left() const {
  std::string text = "there is no whole checkpoint";
  try {
    for (const CheckpointEntry& entry : list()) {
      if (entry.is_whole()) text = fmt::format("the newest whole checkpoint is '{}'", entry.path);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return text;
}

void Checkpoints::save(const CheckpointContents& contents, const KeptCheckpoints& keep) {
  CHECK(keep.newest >= 1 && contents.manifest.step >= 0);
  const std::string path = join_path(folder_, fmt::format("step-{:06}", contents.manifest.step));
  const std::string temporary = temporary_name(path);
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
    throw Error(error.code(), "[checkpoint] step {} was not saved: {}; {}", contents.manifest.step,
                error.what(), what_is_left());
  }
  try {
    prune(keep, path);
  } catch (const Error& error) {  // the new checkpoint is whole: going on is right
    log_.warning("[checkpoint] old checkpoints stay: {}", error.what());
  }
}

void Checkpoints::prune(const KeptCheckpoints& keep, const std::string& just_saved) {
  const std::vector<CheckpointEntry> entries = list();
  int n_newer_whole = 0;
  int64_t last_step = -1;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const bool is_duplicate = n_newer_whole > 0 && entry->step == last_step;
    const bool is_old = entry->is_whole() ? n_newer_whole >= keep.newest && entry->step != keep.also
                                          : n_newer_whole > 0;
    const bool is_ours = entry->is_reachable && !entry->is_link;
    if ((is_duplicate || is_old) && entry->path != just_saved && is_ours) {
      remove_checkpoint(files_, entry->path);
    } else if (entry->is_whole()) {
      ++n_newer_whole;
      last_step = entry->step;
    }
  }
  remove_left_over_saves();
}

void Checkpoints::remove_left_over_saves() {
  for (const DirectoryEntry& entry : files_.list(folder_)) {
    const bool is_ours = entry.kind == EntryKind::directory && is_left_over_save(entry.name);
    if (is_ours) remove_checkpoint(files_, join_path(folder_, entry.name));
  }
}

void Checkpoints::remove_all() {
  for (const CheckpointEntry& entry : list()) {
    if (!entry.is_link) remove_checkpoint(files_, entry.path);
  }
  if (files_.exists(folder_)) remove_left_over_saves();
}

std::string Checkpoints::why_not_whole(const std::string& path) const {
  const std::string marker_path = join_path(path, kComplete);
  if (!files_.exists(marker_path)) return "it has no COMPLETE marker";
  const Marker marker = read_marker(files_, marker_path);
  for (const std::string_view name : {kModel, kOptim, kManifest}) {
    if (!marker.contains(std::string(name))) return fmt::format("COMPLETE lacks {}", name);
  }
  for (const auto& [name, mark] : marker) {
    const std::string file = join_path(path, name);
    if (!files_.exists(file)) {
      return fmt::format("[files] cannot open '{}': No such file or directory", file);
    }
    verify_size(files_, file, mark);
  }
  return wrong_name(files_, path);
}

CheckpointEntry Checkpoints::inspect(const std::string& path) const {
  CheckpointEntry entry;
  entry.path = path;
  try {
    entry.is_link = files_.entry_kind(path) == EntryKind::link;
    files_.kind(path);  // throws where a link leads nowhere
    entry.problem = why_not_whole(path);
  } catch (const Error& error) {
    entry.problem = error.what();
    entry.is_reachable = error.code() != ErrorCode::io;
  }
  return entry;
}

std::vector<CheckpointEntry> Checkpoints::list() const {
  std::vector<CheckpointEntry> entries;
  if (!files_.exists(folder_)) return entries;
  for (const DirectoryEntry& found : files_.list(folder_)) {
    const std::optional<int64_t> step = step_of(found.name);
    const bool is_folder = found.kind == EntryKind::directory || found.kind == EntryKind::link;
    if (!step || !is_folder) continue;
    const std::string path = join_path(folder_, found.name);
    CheckpointEntry entry = inspect(path);
    entry.step = *step;
    const bool is_known = entry.is_whole() || !entry.is_reachable;
    if (is_known || holds_part_of_checkpoint(files_, path)) entries.push_back(std::move(entry));
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
    if (!entry->is_reachable) {
      throw Error(ErrorCode::io, "[checkpoint] cannot tell what is in '{}': {}", entry->path,
                  entry->problem);
    }
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
