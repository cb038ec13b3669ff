#include "io/checkpoint.h"

#include <algorithm>
#include <future>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/if_there.h"
#include "base/temporary_file.h"
#include "io/checkpoint_folder.h"
#include "io/checkpoint_marker.h"
#include "io/in_a_thread.h"

namespace octet {
namespace {

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

}  // namespace

Checkpoints::Checkpoints(Files& files, std::string folder, Log log)
    : files_(files), folder_(std::move(folder)), log_(std::move(log)) {}

std::string Checkpoints::path_of(int64_t step) const {
  return join_path(folder_, fmt::format("step-{:06}", step));
}

std::string Checkpoints::finish_files(const CheckpointContents& contents, const std::string& folder,
                                      Marker marks) {
  Manifest manifest = contents.manifest;
  manifest.model_tensors = dtypes_of(contents.model);
  manifest.optim_tensors = dtypes_of(contents.optim);
  marks[std::string(kManifest)] =
      write_marked(files_, join_path(folder, kManifest),
                   [&](FileWriter& out) { out.write(as_bytes(manifest_to_json(manifest))); });
  files_.sync_directory(folder);
  return marker_to_json(marks);
}

// An entry that is not ours moves to a name of its own.
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

// All in a folder that was made is ours.
void Checkpoints::discard(const std::string& temporary) {
  try {
    remove_checkpoint(files_, temporary);
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

// Says of what fails which checkpoint there is.
template <typename Work>
auto Checkpoints::attempt(int64_t step, const Work& work) const {
  try {
    return work();
  } catch (const Error& error) {
    throw Error(error.code(), "[checkpoint] step {} was not saved: {}; {}", step, error.what(),
                what_is_left());
  }
}

void Checkpoints::publish(const std::string& temporary, const std::string& path,
                          const std::string& marker) {
  put_in_place(temporary, path);
  write_atomically(files_, join_path(path, kComplete), marker);
  if (const std::string problem = problem_of(path); !problem.empty()) {
    throw Error(ErrorCode::io, problem);
  }
}

void Checkpoints::save(const CheckpointContents& contents, const KeptCheckpoints& keep) {
  const int64_t step = contents.manifest.step;
  CHECK(keep.newest >= 1 && step >= 0);
  std::string temporary = temporary_name(path_of(step));
  attempt(step, [&] {
    try {
      files_.create_directories(folder_);
      files_.create_directory(temporary);
      Marker marks;
      const auto write = [&](std::string_view name, const std::function<void(FileWriter&)>& body) {
        marks[std::string(name)] = write_marked(files_, join_path(temporary, name), body);
      };
      write(kModel, [&](FileWriter& out) {
        write_safetensors(out, contents.model, contents.model_metadata);
      });
      write(kOptim, [&](FileWriter& out) { write_safetensors(out, contents.optim); });
      publish(temporary, path_of(step), finish_files(contents, temporary, std::move(marks)));
    } catch (const Error&) {
      discard(temporary);
      throw;
    }
  });
  remove_or_warn([&] { return outdated(list(), keep, path_of(step)); });
}

std::string Checkpoints::begin(int64_t step) {
  const std::string temporary = temporary_name(path_of(step));
  attempt(step, [&] {
    try {
      files_.create_directories(folder_);
      files_.create_directory(temporary);
      for (const std::string_view name : {kModel, kOptim})
        files_.create(join_path(temporary, name))->close();
    } catch (const Error&) {
      discard(temporary);
      throw;
    }
  });
  return temporary;
}

PartHashes Checkpoints::write_part(const std::string& temporary, const CheckpointContents& contents,
                                   FileHeader header) {
  return attempt(contents.manifest.step, [&] {
    const SafetensorsLayout model(contents.model, contents.model_metadata);
    const SafetensorsLayout optim(contents.optim);
    PartHashes hashes;
    hashes.model = octet::write_part(files_, join_path(temporary, kModel), model, header);
    hashes.optim = octet::write_part(files_, join_path(temporary, kOptim), optim, header);
    return hashes;
  });
}

void Checkpoints::complete(const std::string& temporary, const CheckpointContents& contents,
                           std::span<const PartHashes> parts, const KeptCheckpoints& keep) {
  const int64_t step = contents.manifest.step;
  CHECK(keep.newest >= 1 && step >= 0);
  attempt(step, [&] {
    PositionalHash model_sum, optim_sum;
    for (const PartHashes& part : parts) {
      model_sum.add(part.model);
      optim_sum.add(part.optim);
    }
    const FileMark model{
        .n_bytes = SafetensorsLayout(contents.model, contents.model_metadata).n_bytes,
        .sum61 = model_sum.digest()};
    const FileMark optim{.n_bytes = SafetensorsLayout(contents.optim).n_bytes,
                         .sum61 = optim_sum.digest()};
    verify_size(files_, join_path(temporary, kModel), model);
    verify_size(files_, join_path(temporary, kOptim), optim);
    const Marker marks = {{std::string(kModel), model}, {std::string(kOptim), optim}};
    publish(temporary, path_of(step), finish_files(contents, temporary, marks));
  });
  remove_or_warn([&] { return outdated(list(), keep, path_of(step)); });
}

// The new checkpoint is whole: going on is right.
void Checkpoints::remove_or_warn(const std::function<std::vector<std::string>()>& paths) {
  try {
    for (const std::string& path : paths()) remove_checkpoint(files_, path);
  } catch (const Error& error) {
    log_.warning("[checkpoint] old checkpoints stay: {}", error.what());
  }
}

void Checkpoints::tidy(const KeptCheckpoints& keep, const std::string& loaded) {
  remove_or_warn([&] { return left_behind(keep, loaded); });
}

std::vector<std::string> Checkpoints::left_behind(const KeptCheckpoints& keep,
                                                  const std::string& loaded) const {
  std::vector<CheckpointEntry> entries = list();
  const auto at = std::ranges::find(entries, loaded, &CheckpointEntry::path);
  if (at == entries.end()) return {};
  entries.erase(at + 1, entries.end());
  return outdated(entries, keep, loaded);
}

std::vector<std::string> Checkpoints::outdated(const std::vector<CheckpointEntry>& entries,
                                               const KeptCheckpoints& keep,
                                               const std::string& just_saved) const {
  std::vector<std::string> paths;
  int n_newer_whole = 0;
  int64_t last_step = -1;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const bool is_duplicate = n_newer_whole > 0 && entry->step == last_step;
    const bool is_old = entry->is_whole() ? n_newer_whole >= keep.newest && entry->step != keep.also
                                          : n_newer_whole > 0;
    const bool is_ours = entry->is_reachable && !entry->is_link;
    if ((is_duplicate || is_old) && entry->path != just_saved && is_ours) {
      paths.push_back(entry->path);
    } else if (entry->is_whole()) {
      ++n_newer_whole;
      last_step = entry->step;
    }
  }
  std::ranges::copy(left_over_saves(), std::back_inserter(paths));
  return paths;
}

std::vector<std::string> Checkpoints::left_over_saves() const {
  std::vector<std::string> paths;
  for (const DirectoryEntry& entry : list_if_there(files_, folder_)) {
    if (entry.kind == EntryKind::directory && is_left_over_save(entry.name))
      paths.push_back(join_path(folder_, entry.name));
  }
  return paths;
}

void Checkpoints::remove_all() {
  for (const CheckpointEntry& entry : list()) {
    if (!entry.is_link) remove_checkpoint(files_, entry.path);
  }
  for (const std::string& path : left_over_saves()) remove_checkpoint(files_, path);
}

std::string Checkpoints::why_not_whole(const std::string& path) const {
  const std::string marker_path = join_path(path, kComplete);
  const auto marker =
      files_.exists(marker_path)
          ? if_there(files_, marker_path, [&] { return read_marker(files_, marker_path); })
          : std::nullopt;
  if (!marker) return "it has no COMPLETE marker";
  for (const std::string_view name : {kModel, kOptim, kManifest}) {
    if (!marker->contains(std::string(name))) return fmt::format("COMPLETE lacks {}", name);
  }
  for (const auto& [name, mark] : *marker) {
    const std::string file = join_path(path, name);
    if (!if_there(files_, file, [&, &size = mark] { verify_size(files_, file, size); })) {
      return fmt::format("[files] cannot open '{}': No such file or directory", file);
    }
  }
  return wrong_name(files_, path);
}

CheckpointEntry Checkpoints::inspect(const std::string& path) const {
  CheckpointEntry entry{.path = path, .problem = ""};
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
  for (const DirectoryEntry& found : list_if_there(files_, folder_)) {
    const std::optional<int64_t> step = step_of(found.name);
    const bool is_folder = found.kind == EntryKind::directory || found.kind == EntryKind::link;
    if (!step || !is_folder) continue;
    const std::string path = join_path(folder_, found.name);
    CheckpointEntry entry = inspect(path);
    entry.step = *step;
    const bool is_there = files_.entry_kind(path) != EntryKind::none;
    const bool is_known = entry.is_whole() || (!entry.is_reachable && is_there);
    if (is_known || holds_part_of_checkpoint(files_, path)) entries.push_back(std::move(entry));
  }
  // The checkpoint set aside comes first in its step, so that the replacement is preferred.
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.step != b.step ? a.step < b.step : a.path > b.path;
  });
  return entries;
}

void Checkpoints::verify(const std::string& path) const {
  // All files at a time, where threads can be made: one stream alone is slower than most disks.
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

// Another process that removes old checkpoints meanwhile has saved a newer one: what is there then
// is looked at again.
std::optional<LoadedCheckpoint> Checkpoints::newest() const {
  std::vector<CheckpointEntry> entries = list();
  while (true) {
    std::vector<CheckpointEntry> now = entries;
    try {
      auto found = newest_of(entries);
      if (found || (now = list()) == entries) return found;
    } catch (const Error&) {
      if ((now = list()) == entries) throw;
    }
    entries = std::move(now);
  }
}

std::optional<LoadedCheckpoint> Checkpoints::newest_of(
    const std::vector<CheckpointEntry>& entries) const {
  int n_damaged = 0;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (!entry->is_reachable) {
      throw Error(ErrorCode::io, "[checkpoint] cannot tell what is in '{}': {}", entry->path,
                  entry->problem);
    }
    std::string problem = entry->problem;
    try {
      if (entry->is_whole()) return load(entry->path);
    } catch (const Error& error) {
      problem = error.what();
    }
    // A marker is written last, and removed first: what does not fit it was damaged later.
    const bool is_damaged = files_.exists(join_path(entry->path, kComplete));
    n_damaged += is_damaged ? 1 : 0;
    if (is_damaged || !entry->is_whole())
      log_.warning("[checkpoint] skipping '{}': {}", entry->path, problem);
  }
  if (n_damaged > 0) {
    throw Error(ErrorCode::bad_data,
                "[checkpoint] '{}': expected a checkpoint that can be read, got {} that cannot",
                folder_, n_damaged);
  }
  return std::nullopt;
}

}  // namespace octet
