#include "data/documents.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/ordered_json.h"

namespace octet {
namespace {

constexpr size_t kReadBytes = 1 << 18;

bool ends_in(const std::string& path, std::initializer_list<std::string_view> endings) {
  const std::string name = unpacked_name(path);
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace

DocumentReader::DocumentReader(const Files& files, const std::string& path,
                               const DocumentOptions& options)
    : path_(path), options_(options), stream_(open_stream(files, path)) {
  is_json_ = options.json == JsonLines::parsed && ends_in(path, {".jsonl", ".json", ".ndjson"});
  ending_ = is_json_ ? "\n" : options.separator;
  buffer_.resize(kReadBytes);
  buffer_.resize(stream_->read(buffer_));
  is_at_end_ = buffer_.empty();
  at_ = buffer_.size() - without_byte_order_mark(buffer_).size();
  if (ends_in(path, {".parquet"}) || buffer_.starts_with("PAR1")) {
    throw Error(ErrorCode::bad_data,
                "[data] {}: Parquet is not supported; expected text or JSON lines", path);
  }
}

DocumentReader::~DocumentReader() = default;

std::optional<Document> DocumentReader::next() {
  is_too_long_ = false;
  std::optional<std::string> part = next_part();
  if (!part) return std::nullopt;
  if (is_too_long_) return Document{"", "too long"};
  if (is_json_) return of_json(*part);
  return checked(ending_.empty() ? std::move(*part) : std::string(stripped(*part)));
}

// Up to the next ending, or to the end. What is too long is read over.
std::optional<std::string> DocumentReader::next_part() {
  size_t searched = at_;
  while (true) {
    const size_t found = ending_.empty() ? buffer_.npos : buffer_.find(ending_, searched);
    if (found != buffer_.npos) {
      std::string part = buffer_.substr(at_, found - at_);
      at_ = found + ending_.size();
      return part;
    }
    if (is_at_end_) {
      if (at_ == buffer_.size()) return std::nullopt;
      std::string part = buffer_.substr(at_);
      at_ = buffer_.size();
      return part;
    }
    const size_t overlap = std::min(buffer_.size() - at_, ending_.empty() ? 0 : ending_.size() - 1);
    if (buffer_.size() - at_ > options_.max_document_bytes) {
      is_too_long_ = true;
      at_ = buffer_.size() - overlap;
    }
    buffer_.erase(0, at_);
    at_ = 0;
    searched = buffer_.size() - overlap;
    const size_t n = buffer_.size();
    buffer_.resize(n + kReadBytes);
    buffer_.resize(n + stream_->read(std::span(buffer_).subspan(n)));
    is_at_end_ = buffer_.size() == n;
  }
}

Document DocumentReader::checked(std::string text) const {
  if (text.empty()) return {"", "empty"};
  if (text.find('\0') != text.npos) return {"", "has a NUL"};
  if (!is_readable_text(text)) return {"", "not UTF-8"};
  return {std::move(text), ""};
}

Document DocumentReader::of_json(const std::string& line) const {
  if (stripped(line).empty()) return {"", "empty"};
  OrderedJson json;
  try {
    json = parse_ordered_json(line, path_);
  } catch (const Error&) {
    return {"", "not JSON"};
  }
  const auto text = json.is_object() ? json.find(options_.text_key) : json.end();
  if (text != json.end() && text->is_binary()) {
    const bool is_twice = what_is_unread(*text) == kGivenTwice;
    return {"", is_twice ? kGivenTwice : "has half of a surrogate pair"};
  }
  if (text == json.end() || !text->is_string()) return {"", "no text"};
  return checked(text->get<std::string>());
}

FolderFiles expand_paths(const Files& files, const std::vector<std::string>& paths) {
  FolderFiles found;
  for (const std::string& path : paths) {
    if (!files.exists(path)) {
      throw Error(ErrorCode::bad_data, "[data] '{}': expected a file or a folder, got neither",
                  path);
    }
    if (files.is_directory(path)) {
      add_files_under(files, path, found);
    } else {
      found.paths.push_back(path);
    }
  }
  return found;
}

}  // namespace octet
