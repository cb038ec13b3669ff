#include "train/run_folder.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/output_folder.h"
#include "base/temporary_file.h"
#include "io/checkpoint.h"
#include "train/run_export.h"

namespace octet {
namespace {

constexpr std::string_view kLock = ".lock", kConfig = "config.yaml", kTelemetry = "telemetry.jsonl";
// What a run writes under a fixed name, beside ckpt/.
constexpr std::string_view kFiles[] = {"config.yaml",     "config.json",   "metrics.jsonl",
                                       "telemetry.jsonl", "samples.jsonl", "algorithms.json",
                                       "trace.json",      "chat.json",     "generation_config.json",
                                       "sentence.json",   "plan.json"};
// Those that not every run writes, so that an older run's could stay.
constexpr std::string_view kOptional[] = {
    "samples.jsonl",          "algorithms.json", "trace.json", "chat.json",
    "generation_config.json", "sentence.json",   "plan.json"};
constexpr std::string_view kHeader = "# Written by octet ";

std::vector<CheckpointEntry> checkpoints_in(Files& files, const std::string& folder) {
  return Checkpoints(files, join_path(folder, "ckpt")).list();
}

// Before there was a header: all keys in the table's order.
bool is_early_config(const std::string& text) {
  return text.starts_with("model:\n  path: ") && text.find("\nout: ") != text.npos &&
         text.find('#') == text.npos;
}

// A file that a run would replace or that tells of one; nothing in a folder that is free.
std::optional<std::string> trace_of_run(Files& files, const std::string& folder) {
  const std::vector<CheckpointEntry> entries = checkpoints_in(files, folder);
  if (!entries.empty()) return entries.back().path;
  for (const std::string_view name : kFiles) {
    const std::string path = join_path(folder, name);
    if (files.entry_kind(path) != EntryKind::none) return path;
  }
  return std::nullopt;
}

[[noreturn]] void throw_foreign(const std::string& path) {
  throw Error(ErrorCode::invalid_argument,
              "out: expected a folder whose files a run may replace, got '{}', which this program "
              "did not write (choose another folder)",
              path);
}

// The beginning of a file; NULs are what a power failure can leave of any.
std::string first_bytes(const Files& files, const std::string& path, uint64_t max_bytes) {
  const auto file = files.open(path);
  std::string text(std::min(max_bytes, file->size()), '\0');
  file->read_at(0, text);
  return text.starts_with('\0') ? "" : text;
}

// Lines of steps. A kill can cut the first one short.
bool is_json_lines(const std::string& text) {
  constexpr std::string_view kStep = "{\"step\"";
  const std::string line = text.substr(0, text.find('\n'));
  if (line.starts_with(kStep) || kStep.starts_with(line)) return true;
  const Json json = parse_own_json(line);
  return json.is_object() && (json.empty() || json.contains("step"));
}

bool is_model_description(const std::string& text) {
  if (text.empty()) return true;
  const Json json = parse_own_json(text);
  return json.is_object() && (json.empty() || json.contains("model_type"));
}

// True if a file that a run would replace holds what a run writes there.
bool is_of_run(const Files& files, const std::string& path) {
  constexpr uint64_t kMaxLine = 1 << 20, kMaxDescription = 16 << 20;
  const std::string name = file_name(path);
  if (name.ends_with(".jsonl")) return is_json_lines(first_bytes(files, path, kMaxLine));
  return name != "config.json" || is_model_description(first_bytes(files, path, kMaxDescription));
}

// Checks what a run will replace, before it replaces any of it.
void check_replaceable(Files& files, const std::string& folder, StartMode mode) {
  for (const std::string_view name : kFiles) {
    const std::string path = join_path(folder, name);
    const EntryKind kind = files.entry_kind(path);
    if (kind == EntryKind::none) continue;
    // A run goes on without telemetry, with a warning.
    if (kind == EntryKind::directory && name == kTelemetry) continue;
    if (kind == EntryKind::link && mode == StartMode::overwrite) {
      throw Error(ErrorCode::invalid_argument,
                  "out: expected files of a run that --overwrite may replace, got the link '{}'",
                  path);
    }
    files.write_target(path);
    if (files.exists(path) && !is_of_run(files, path)) throw_foreign(path);
  }
}

// A folder that takes no checkpoint is better met before the work than after it.
void check_writable(Files& files, const std::string& ckpt) {
  if (!files.exists(ckpt)) return;
  const std::string probe = temporary_name(join_path(ckpt, "step-000000"));
  files.create_directory(probe);
  files.remove(probe);
}

void check_overwrite(Files& files, const std::string& folder, const std::string& trace) {
  if (maker_of_run(files, folder).empty()) throw_foreign(trace);
  if (files.entry_kind(join_path(folder, "ckpt")) == EntryKind::link) {
    throw Error(ErrorCode::invalid_argument,
                "out: expected checkpoints that --overwrite may remove, got the link '{}'",
                join_path(folder, "ckpt"));
  }
  for (const CheckpointEntry& entry : checkpoints_in(files, folder)) {
    if (!entry.is_link && entry.is_reachable) continue;
    throw Error(ErrorCode::invalid_argument,
                "out: expected checkpoints that --overwrite may remove, got {} '{}'",
                entry.is_link ? "the link" : "what cannot be read", entry.path);
  }
}

// Without config.yaml a run can still go on from its checkpoints or begin again over its metrics.
void check_resume(Files& files, const std::string& folder, const std::string& trace) {
  const bool has_config = files.entry_kind(join_path(folder, kConfig)) != EntryKind::none;
  if (has_config && maker_of_run(files, folder).empty()) throw_foreign(join_path(folder, kConfig));
  if (!has_config && trace == join_path(folder, "config.json")) throw_foreign(trace);
}

void remove_old_run(Files& files, const std::string& folder) {
  Checkpoints(files, join_path(folder, "ckpt")).remove_all();
  for (const std::string_view name : kOptional) {
    const std::string path = join_path(folder, name);
    if (files.entry_kind(path) == EntryKind::file) files.remove(path);
  }
  remove_export(files, folder);
}

}  // namespace

std::string config_header(std::string_view maker) {
  return fmt::format("{}{}: all keys of this run. It is replaced when the run goes on.\n", kHeader,
                     maker);
}

std::string maker_of_run(Files& files, const std::string& folder) {
  const std::string path = join_path(folder, kConfig);
  if (files.entry_kind(path) != EntryKind::file) return "";
  const std::string text = files.read_text(path);
  if (!text.starts_with(kHeader)) return is_early_config(text) ? "train" : "";
  const std::string maker = text.substr(kHeader.size(), text.find_first_of(":\n") - kHeader.size());
  return text.starts_with(config_header(maker)) ? maker : "";
}

void check_run_folder(Files& files, const std::string& folder, StartMode mode) {
  if (!files.exists(folder)) return;
  const std::optional<std::string> trace = trace_of_run(files, folder);
  if (!trace || mode != StartMode::resume) check_not_above(files, "out", folder);
  if (!trace) return;
  if (mode == StartMode::resume) check_resume(files, folder, *trace);
  if (mode == StartMode::overwrite) check_overwrite(files, folder, *trace);
  if (mode != StartMode::fresh) return check_replaceable(files, folder, mode);
  const bool is_of_any_program =
      *trace == join_path(folder, kConfig) || *trace == join_path(folder, "config.json");
  if (is_of_any_program && maker_of_run(files, folder).empty()) throw_foreign(*trace);
  throw Error(ErrorCode::invalid_argument,
              "out: expected a folder without a run, got {} (go on with --resume, begin anew with "
              "--overwrite, or choose another folder)",
              *trace);
}

std::unique_ptr<FileLock> take_run_folder(Files& files, const std::string& folder, StartMode mode,
                                          const Log& log) {
  check_run_folder(files, folder, mode);
  files.create_directories(folder);
  auto lock = files.lock(join_path(folder, kLock));
  if (lock && !lock->problem().empty()) {
    log.warning("'{}' cannot be locked ({}): let no other process train in it", folder,
                lock->problem());
  }
  check_run_folder(files, folder, mode);  // nobody else changes it from here on
  for (const std::string_view name : kFiles) remove_left_overs(files, folder, name);
  check_writable(files, join_path(folder, "ckpt"));
  if (mode == StartMode::overwrite) remove_old_run(files, folder);
  return lock;
}

void tidy_run_folder(Files& files, const std::string& folder, const KeptCheckpoints& keep,
                     const std::string& loaded) {
  Checkpoints checkpoints(files, join_path(folder, "ckpt"));
  try {
    if (checkpoints.left_behind(keep, loaded).empty()) return;
    const auto lock = files.lock(join_path(folder, kLock));
    checkpoints.tidy(keep, loaded);
  } catch (const Error&) {  // another process tidies when it saves
  }
}

}  // namespace octet
