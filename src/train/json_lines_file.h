// A file of JSON objects, one a line, each with the "step" that it belongs to: RUN/metrics.jsonl
// and RUN/telemetry.jsonl. Each line is written when its step is done.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/files.h"

namespace octet {

class JsonLinesFile {
 public:
  // Keeps the lines of steps up to `last_step` (0: none) of the file that is there, so that a
  // resumed run's file reads as if nothing had happened. The kept lines take the old file's place
  // in one act: they are never lost.
  JsonLinesFile(Files& files, const std::string& path, int64_t last_step);

  // Without the line's end.
  void append(std::string_view json);
  // Returns when the lines are on the medium.
  void sync() { file_->sync(); }

  const std::string& kept() const { return kept_; }  // lines, with their ends

 private:
  std::string kept_;
  std::unique_ptr<FileWriter> file_;
};

}  // namespace octet
