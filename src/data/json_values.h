// The JSON values of a file, one after the other, each with the line that it begins on: the
// elements of one array, a value a line, or values that follow each other. Holds one value and a
// piece of the file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/input_limits.h"
#include "data/byte_stream.h"

namespace octet {

struct JsonText {
  std::string text;  // may be no JSON
  int64_t line = 1;
  bool is_too_long = false;  // and not kept
};

// Values longer than max_value_bytes are an error, or told and read over.
struct JsonLimits {
  uint64_t max_bytes = input_limits().max_unpacked_bytes;  // of the file
  uint64_t max_value_bytes = input_limits().json.max_record_bytes;
  enum class LongValues : uint8_t { are_errors, are_told } long_values = LongValues::are_errors;
};

class JsonValues {
 public:
  // Unpacks .gz, .bz2, .xz and .zst. Lines are values where the name ends in .jsonl or .ndjson, or
  // where the first line is an object. Throws Error{bad_data} for what is beyond the limits, here
  // and below.
  JsonValues(const Files& files, const std::string& path, const JsonLimits& limits = {});
  // Blank lines are left out.
  std::optional<JsonText> next();

 private:
  enum class Layout { lines, array, sequence };

  void find_layout();
  bool has_more(size_t n = 1);  // bytes behind at_; reads on where they are not there yet
  void skip(std::string_view characters);
  void append(size_t end, JsonText& value);
  JsonText take();

  std::string path_;
  JsonLimits limits_;
  std::unique_ptr<ByteStream> stream_;
  std::string buffer_;
  size_t at_ = 0;  // of what is not given out yet, in buffer_
  uint64_t n_read_ = 0;
  Layout layout_ = Layout::sequence;
  int64_t line_ = 1;
};

// True if a file's content begins as JSON objects do: {" or {}, or such in a list.
bool begins_with_objects(const Files& files, const std::string& path);

}  // namespace octet
