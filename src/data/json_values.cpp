#include "data/json_values.h"

#include <algorithm>

#include "base/error.h"
#include "base/ordered_json.h"

namespace octet {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr size_t kPiece = 1 << 20;

bool is_object(std::string_view line) {
  try {
    return parse_ordered_json(line, "").is_object();
  } catch (const Error&) {
    return false;
  }
}

// The end of a value: behind the brackets that it opens; without any, where the next begins.
class ValueEnd {
 public:
  enum class At { not_yet, before, behind };

  At step(char ch) {
    if (is_in_text_) {
      is_in_text_ = is_escaped_ || ch != '"';
      is_escaped_ = !is_escaped_ && ch == '\\';
      return At::not_yet;
    }
    is_in_text_ = ch == '"';
    if (depth_ == 0 && has_begun_ && (ch == ',' || ch == ']' || ch == '\n')) return At::before;
    has_begun_ = true;
    if (ch == '{' || ch == '[') ++depth_;
    const bool closes = ch == '}' || ch == ']';
    if (closes) --depth_;
    return closes && depth_ <= 0 ? At::behind : At::not_yet;
  }

 private:
  int64_t depth_ = 0;
  bool is_in_text_ = false, is_escaped_ = false, has_begun_ = false;
};

}  // namespace

JsonValues::JsonValues(const Files& files, const std::string& path, const JsonLimits& limits)
    : path_(path), limits_(limits), stream_(open_stream(files, path)) {
  if (has_more(3) && std::string_view(buffer_).starts_with("\xEF\xBB\xBF")) at_ = 3;
  const std::string name = unpacked_name(path);
  const bool is_lines = name.ends_with(".jsonl") || name.ends_with(".ndjson");
  is_lines ? void(layout_ = Layout::lines) : find_layout();
}

void JsonValues::find_layout() {
  skip(kSpace);
  if (!has_more()) return;
  if (buffer_[at_] == '[') {
    layout_ = Layout::array;
    ++at_;
    return;
  }
  size_t n = buffer_.size() - at_;
  while (buffer_.find('\n', at_) == buffer_.npos && n <= limits_.max_value_bytes && has_more(n + 1))
    n = buffer_.size() - at_;
  const std::string_view rest = std::string_view(buffer_).substr(at_);
  if (is_object(rest.substr(0, rest.find('\n')))) layout_ = Layout::lines;
}

bool JsonValues::has_more(size_t n) {
  while (buffer_.size() - at_ < n) {
    buffer_.erase(0, at_);
    at_ = 0;
    const size_t n_before = buffer_.size();
    buffer_.resize(n_before + kPiece);
    const size_t n_new = stream_->read(std::span(buffer_).subspan(n_before));
    buffer_.resize(n_before + n_new);
    if (n_new == 0) return false;
    n_read_ += n_new;
    if (n_read_ > limits_.max_bytes) {
      throw Error(ErrorCode::bad_data, "[data] '{}': expected at most {} bytes of JSON, got more",
                  path_, limits_.max_bytes);
    }
  }
  return true;
}

void JsonValues::skip(std::string_view characters) {
  while (has_more() && characters.find(buffer_[at_]) != characters.npos) {
    line_ += buffer_[at_] == '\n' ? 1 : 0;
    ++at_;
  }
}

// Appends the buffer's content up to `end`.
void JsonValues::append(size_t end, JsonText& value) {
  const std::string_view part = std::string_view(buffer_).substr(at_, end - at_);
  line_ += std::count(part.begin(), part.end(), '\n');
  at_ = end;
  if (value.is_too_long) return;
  if (value.text.size() + part.size() <= limits_.max_value_bytes) {
    value.text += part;
    return;
  }
  if (limits_.long_values == JsonLimits::LongValues::are_errors) {
    throw Error(ErrorCode::bad_data, "[data] {}:{}: expected values of at most {} bytes, got more",
                path_, value.line, limits_.max_value_bytes);
  }
  value.is_too_long = true;
  std::string().swap(value.text);
}

// The value at at_, a character at least.
JsonText JsonValues::take() {
  JsonText value{.text = {}, .line = line_};
  ValueEnd scan;
  auto end = ValueEnd::At::not_yet;
  while (end == ValueEnd::At::not_yet && has_more()) {
    size_t i = at_;
    if (layout_ == Layout::lines) {
      i = std::min(buffer_.find('\n', at_), buffer_.size());
      if (i < buffer_.size()) end = ValueEnd::At::before;
    } else {
      while (i < buffer_.size() && end == ValueEnd::At::not_yet) end = scan.step(buffer_[i++]);
      if (end == ValueEnd::At::before) --i;
    }
    append(i, value);
  }
  return value;
}

std::optional<JsonText> JsonValues::next() {
  skip(layout_ == Layout::array ? " \t\r\n," : kSpace);
  if (layout_ == Layout::array && has_more() && buffer_[at_] == ']') {
    layout_ = Layout::sequence;  // what stands behind the array is told as well
    ++at_;
    skip(kSpace);
  }
  if (!has_more()) return std::nullopt;
  return take();
}

bool begins_with_objects(const Files& files, const std::string& path) {
  const auto stream = open_stream(files, path);
  std::string text(kPiece, '\0');
  text.resize(stream->read(text));
  std::string_view rest = text;
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
  const auto skip = [&rest] {
    rest.remove_prefix(std::min(rest.find_first_not_of(kSpace), rest.size()));
  };
  skip();
  if (rest.starts_with('[')) {
    rest.remove_prefix(1);
    skip();
  }
  if (!rest.starts_with('{')) return false;
  rest.remove_prefix(1);
  skip();
  return rest.starts_with('"') || rest.starts_with('}');
}

}  // namespace octet
