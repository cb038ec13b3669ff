// The JSON values of a file, one after the other, each with the line that it begins on: the
// elements of one array, a value a line, or values that follow each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/files.h"

namespace octet {

struct JsonText {
  std::string_view text;  // valid as long as the reader; may be no JSON
  int64_t line = 1;
};

class JsonValues {
 public:
  // Unpacks .gz, .bz2, .xz and .zst. Lines are values where the name ends in .jsonl or .ndjson, or
  // where the first line is an object. Throws Error{bad_data} for files of more than max_bytes.
  JsonValues(const Files& files, const std::string& path, uint64_t max_bytes = uint64_t{4} << 30);
  // Blank lines are left out.
  std::optional<JsonText> next();

 private:
  enum class Layout { lines, array, sequence };

  void skip(std::string_view characters);
  JsonText take(size_t end);
  size_t end_of_value() const;

  std::string bytes_;
  Layout layout_ = Layout::sequence;
  size_t at_ = 0;
  int64_t line_ = 1;
};

}  // namespace octet
