// RUN/export: the model that a run ends with, as other programs load it (infer/export.h).
//
// octet_export.json in it says which checkpoint it is of, and that a run wrote it: another folder
// of this name is somebody's, and is neither replaced nor removed.
#pragma once

#include <cstdint>
#include <string>

#include "base/files.h"
#include "base/log.h"
#include "config/choices.h"

namespace octet {

struct RunExport {
  std::string run;
  int64_t step = 0;  // of the checkpoint
  ExportAs form = ExportAs::as_stored;
};

// Throws Error{invalid_argument} where RUN/export is there and no run wrote it.
void check_export(const Files& files, const std::string& run);

// True if RUN/export is this one, whole.
bool is_exported(const Files& files, const RunExport& what);

// Replaces RUN/export as one act, but for the moment between two renames. Throws as export_model
// does; the old folder is there then.
void export_run(Files& files, const RunExport& what, const Log& log);

// Removes RUN/export where a run wrote it, with the files in it; folders in it stay.
void remove_export(Files& files, const std::string& run);

}  // namespace octet
