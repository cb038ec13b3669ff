// A file of JSON objects, one a line, each with the "step" that it belongs to: RUN/metrics.jsonl
// and RUN/telemetry.jsonl. Each line is written when its step is done.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/files.h"

namespace octet {

// The step of a line as this program writes it, {"step":12,...}, without parsing the rest; nothing
// where it begins or ends otherwise.
std::optional<int64_t> quick_step(std::string_view line);

class JsonLinesFile {
 public:
  using Visit = std::function<void(std::string_view line)>;

  // Keeps the lines of steps up to `last_step` (0: none) of the file that is there, so that a
  // resumed run's file reads as if nothing had happened, and shows each to `visit`. The kept lines
  // take the old file's place in one act: they are never lost. Memory stays bounded.
  JsonLinesFile(Files& files, const std::string& path, int64_t last_step, const Visit& visit = {});

  // Without the line's end. Errors name `path`, though the file was made under another name.
  void append(std::string_view json);
  // Returns when the lines are on the medium.
  void sync();
  bool is_in_place() const { return file_->is_at(path_); }

 private:
  std::string path_;
  std::unique_ptr<FileWriter> file_;
};

}  // namespace octet
