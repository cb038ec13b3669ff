#include "data/numpy_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/parse_text.h"

namespace octet {
namespace {

constexpr std::string_view kNumpyMagic = "\x93NUMPY";
constexpr uint32_t kMaxHeader = 1 << 16;

// A cursor over the header's Python dictionary: strings, True, False and tuples of integers.
class Dictionary {
 public:
  Dictionary(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  std::map<std::string, std::string> parse() {
    std::map<std::string, std::string> values;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (!values.emplace(key, value()).second) bad(fmt::format("key '{}' comes twice", key));
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (!text_.empty()) bad("bytes follow the dictionary");
    return values;
  }

 private:
  [[noreturn]] void bad(const std::string& what) const {
    throw Error(ErrorCode::bad_data, "[shard] {}: NumPy header: {}", path_, what);
  }
  void skip_space() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n')) text_.remove_prefix(1);
  }
  bool accept(char ch) {
    skip_space();
    if (text_.empty() || text_[0] != ch) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char ch) {
    if (!accept(ch)) {
      bad(fmt::format("expected '{}', got {}", ch,
                      text_.empty() ? "its end" : fmt::format("'{}'", text_.substr(0, 1))));
    }
  }
  std::string until(std::string_view stops) {
    const size_t n = text_.find_first_of(stops);
    if (n == text_.npos) bad(fmt::format("expected one of \"{}\", got its end", stops));
    std::string part(text_.substr(0, n));
    text_.remove_prefix(n);
    return part;
  }
  std::string quoted() {
    expect('\'');
    std::string part = until("'");
    text_.remove_prefix(1);
    return part;
  }
  std::string value() {
    skip_space();
    if (text_.starts_with('\'')) return quoted();
    if (!accept('(')) return until(",}");
    std::string part = until(")");
    text_.remove_prefix(1);
    return part;
  }

  std::string_view text_;
  const std::string& path_;
};

int64_t parse_length(const std::string& path, std::string shape) {
  std::erase(shape, ' ');
  std::optional<int64_t> length;
  if (shape.ends_with(',')) length = parse_number<int64_t>(shape.substr(0, shape.size() - 1));
  if (!length || *length < 0) {
    throw Error(ErrorCode::bad_data, "[shard] {}: shape must be one dimension below 2^63, got ({})",
                path, shape);
  }
  return *length;
}

}  // namespace

bool has_numpy_magic(const FileReader& file) {
  if (file.size() < kNumpyMagic.size()) return false;
  char magic[6];
  file.read_at(0, magic);
  return std::string_view(magic, 6) == kNumpyMagic;
}

NumpyHeader read_numpy_header(const FileReader& file) {
  const std::string& path = file.path();
  const auto bad = [&](const std::string& what) {
    throw Error(ErrorCode::bad_data, "[shard] {}: NumPy header: {}", path, what);
  };
  std::array<uint8_t, 12> start = {};
  const size_t n_start = std::min<uint64_t>(start.size(), file.size());
  file.read_at(0, std::as_writable_bytes(std::span(start)).first(n_start));
  if (n_start < 8) bad("the file ends within it");
  const int version = start[6];
  if (version < 1 || version > 3) bad(fmt::format("expected version 1 to 3, got {}", version));
  uint32_t n_header = 0;
  const size_t n_length = version == 1 ? 2 : 4;
  if (n_start < 8 + n_length) bad("the file ends within it");
  std::memcpy(&n_header, start.data() + 8, n_length);
  const uint64_t offset = 8 + n_length + n_header;
  if (n_header > kMaxHeader)
    bad(fmt::format("expected at most {} bytes, got {}", kMaxHeader, n_header));
  if (offset > file.size()) bad("the file ends within it");
  std::string text(n_header, '\0');
  file.read_at(8 + n_length, text);
  const auto values = Dictionary(text, path).parse();
  for (const char* key : {"descr", "fortran_order", "shape"}) {
    if (!values.contains(key)) bad(fmt::format("expected key '{}', got none", key));
  }
  if (values.size() != 3) bad(fmt::format("expected 3 keys, got {}", values.size()));
  if (values.at("fortran_order") != "False") {
    bad(fmt::format("'fortran_order' must be False, got {}", values.at("fortran_order")));
  }
  return {values.at("descr"), parse_length(path, values.at("shape")), offset};
}

std::string numpy_header(std::string_view descr, const std::vector<int64_t>& shape) {
  constexpr size_t kBefore = 10;  // magic, version, length of the header
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                   descr, fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  header.append(63 - (kBefore + header.size()) % 64, ' ');
  header += '\n';
  std::string bytes(kNumpyMagic);
  bytes += std::string_view("\x01\x00", 2);
  bytes += static_cast<char>(header.size() & 0xFF);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header;
}

}  // namespace octet
