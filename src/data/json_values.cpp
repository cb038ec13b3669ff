#include "data/json_values.h"

#include <algorithm>

#include "base/error.h"
#include "base/ordered_json.h"
#include "data/byte_stream.h"

namespace octet {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string read_all(const Files& files, const std::string& path, uint64_t max_bytes) {
  constexpr size_t kPiece = 1 << 20;
  const auto stream = open_stream(files, path);
  std::string bytes;
  while (true) {
    const size_t n = bytes.size();
    bytes.resize(n + kPiece);
    bytes.resize(n + stream->read(std::span(bytes).subspan(n)));
    if (bytes.size() == n) return bytes;
    if (bytes.size() > max_bytes) {
      throw Error(ErrorCode::bad_data, "[data] '{}': expected at most {} bytes of JSON, got more",
                  path, max_bytes);
    }
  }
}

bool is_object(std::string_view line) {
  try {
    return parse_ordered_json(line, "").is_object();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

JsonValues::JsonValues(const Files& files, const std::string& path, uint64_t max_bytes)
    : bytes_(read_all(files, path, max_bytes)) {
  if (bytes_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  const std::string name = unpacked_name(path);
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) {
    layout_ = Layout::lines;
    return;
  }
  skip(kSpace);
  const std::string_view rest = std::string_view(bytes_).substr(at_);
  if (rest.starts_with('[')) {
    layout_ = Layout::array;
    ++at_;
  } else if (is_object(rest.substr(0, rest.find('\n')))) {
    layout_ = Layout::lines;
  }
}

void JsonValues::skip(std::string_view characters) {
  while (at_ < bytes_.size() && characters.find(bytes_[at_]) != characters.npos) {
    line_ += bytes_[at_] == '\n' ? 1 : 0;
    ++at_;
  }
}

JsonText JsonValues::take(size_t end) {
  const JsonText value{std::string_view(bytes_).substr(at_, end - at_), line_};
  line_ += std::count(value.text.begin(), value.text.end(), '\n');
  at_ = end;
  return value;
}

// Behind the brackets that the value opens; a value without any ends where the next begins.
size_t JsonValues::end_of_value() const {
  int64_t depth = 0;
  bool is_in_text = false;
  for (size_t i = at_; i < bytes_.size(); ++i) {
    const char ch = bytes_[i];
    if (is_in_text) {
      if (ch == '\\') ++i;
      is_in_text = ch != '"';
      continue;
    }
    if (ch == '"') is_in_text = true;
    if (depth == 0 && i > at_ && (ch == ',' || ch == ']' || ch == '\n')) return i;
    if (ch == '{' || ch == '[') ++depth;
    if (ch == '}' || ch == ']') --depth;
    if (depth <= 0 && (ch == '}' || ch == ']')) return i + 1;
  }
  return bytes_.size();
}

std::optional<JsonText> JsonValues::next() {
  if (layout_ == Layout::lines) {
    skip(kSpace);
    if (at_ == bytes_.size()) return std::nullopt;
    return take(std::min(bytes_.find('\n', at_), bytes_.size()));
  }
  skip(layout_ == Layout::array ? " \t\r\n," : kSpace);
  if (layout_ == Layout::array && at_ < bytes_.size() && bytes_[at_] == ']') {
    layout_ = Layout::sequence;  // what stands behind the array is told as well
    ++at_;
    skip(kSpace);
  }
  if (at_ == bytes_.size()) return std::nullopt;
  return take(std::max(end_of_value(), at_ + 1));
}

}  // namespace octet
