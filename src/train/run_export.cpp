#include "train/run_export.h"

#include "base/error.h"
#include "base/json.h"
#include "base/named_enum.h"
#include "base/temporary_file.h"
#include "infer/export.h"
#include "infer/model_source.h"
#include "infer/sentence_folder.h"

namespace octet {
namespace {

constexpr const char* kNote = "octet_export.json";

std::string export_folder(const std::string& run) {
  return join_path(run, "export");
}

bool is_ours(const Files& files, const std::string& folder) {
  return files.entry_kind(folder) == EntryKind::directory &&
         files.entry_kind(join_path(folder, kNote)) == EntryKind::file;
}

void remove_named_templates(Files& files, const std::string& folder) {
  const std::string named = join_path(folder, kNamedTemplates);
  if (files.entry_kind(named) != EntryKind::directory) return;
  for (const DirectoryEntry& entry : files.list(named)) {
    if (entry.kind == EntryKind::file && entry.name.ends_with(".jinja"))
      files.remove(join_path(named, entry.name));
  }
  if (files.list(named).empty()) files.remove(named);
}

// The note goes last, so that what is half removed is still known.
void remove_files(Files& files, const std::string& folder) {
  remove_named_templates(files, folder);
  remove_sentence_files(files, folder);
  for (const DirectoryEntry& entry : files.list(folder)) {
    if (entry.kind != EntryKind::directory && entry.name != kNote)
      files.remove(join_path(folder, entry.name));
  }
  if (files.entry_kind(join_path(folder, kNote)) == EntryKind::file)
    files.remove(join_path(folder, kNote));
  if (files.list(folder).empty()) files.remove(folder);
}

void remove_left_over_exports(Files& files, const std::string& run) {
  for (const DirectoryEntry& entry : files.list(run)) {
    if (entry.kind == EntryKind::directory && is_left_over(entry.name, "export"))
      remove_files(files, join_path(run, entry.name));
  }
}

std::string note_text(const RunExport& what) {
  const Json note = {{"step", what.step}, {"dtype", enum_name(what.form)}};
  return note.dump(2) + "\n";
}

}  // namespace

void check_export(const Files& files, const std::string& run) {
  const std::string folder = export_folder(run);
  if (files.entry_kind(folder) == EntryKind::none || is_ours(files, folder)) return;
  throw Error(ErrorCode::invalid_argument,
              "train.export: expected a free name or an export of a run, got '{}', which no run "
              "wrote",
              folder);
}

bool is_exported(const Files& files, const RunExport& what) {
  const std::string folder = export_folder(what.run);
  return is_ours(files, folder) && files.read_text(join_path(folder, kNote)) == note_text(what);
}

void export_run(Files& files, const RunExport& what, const Log& log) {
  check_export(files, what.run);
  remove_left_over_exports(files, what.run);
  const std::string checkpoint = join_path(what.run, fmt::format("ckpt/step-{:06}", what.step));
  const ModelSource source = find_model_source(files, checkpoint, log);
  const std::string folder = export_folder(what.run), temporary = temporary_name(folder);
  try {
    if (what.form == ExportAs::adapter) {
      export_adapter(files, source, temporary, log);
    } else {
      const auto dtype = enum_from_name<ExportDtype>(enum_name(what.form));
      CHECK(dtype.has_value());
      export_model(files, source, temporary, {.dtype = *dtype, .log = log});
    }
    write_atomically(files, join_path(temporary, kNote), note_text(what));
  } catch (const Error&) {
    if (files.exists(temporary)) remove_files(files, temporary);
    throw;
  }
  remove_export(files, what.run);
  files.rename(temporary, folder);
  files.sync_directory(what.run);
  log.info("wrote {}, the model of step {}", folder, what.step);
}

void remove_export(Files& files, const std::string& run) {
  if (is_ours(files, export_folder(run))) remove_files(files, export_folder(run));
}

}  // namespace octet
