#include "data/numpy_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/parse_text.h"

namespace octet {
namespace {

constexpr std::string_view kNumpyMagic = "\x93NUMPY";
constexpr uint32_t kMaxHeader = kMaxNumpyHeader - 12;

// A cursor over the header's Python dictionary: strings, True, False and tuples of integers.
class Dictionary {
 public:
  Dictionary(std::string_view text, const std::string& name) : text_(text), name_(name) {}

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
    throw Error(ErrorCode::bad_data, "{}: NumPy header: {}", name_, what);
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
    if (!accept('(')) {
      std::string word = until(",}");
      word.erase(word.find_last_not_of(' ') + 1);
      return word;
    }
    std::string part = until(")");
    text_.remove_prefix(1);
    return part;
  }

  std::string_view text_;
  const std::string& name_;
};

// "3, 4", "3,", "".
std::optional<std::vector<int64_t>> parse_shape(std::string text) {
  std::erase(text, ' ');
  if (!text.empty() && !text.ends_with(',')) text += ',';
  std::vector<int64_t> shape;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find(',', at);
    const auto length = parse_number<int64_t>(text.substr(at, end - at));
    if (!length || *length < 0) return {};
    shape.push_back(*length);
    at = end + 1;
  }
  return shape;
}

}  // namespace

bool has_numpy_magic(std::string_view begin) {
  return begin.starts_with(kNumpyMagic);
}

bool has_numpy_magic(const FileReader& file) {
  if (file.size() < kNumpyMagic.size()) return false;
  char magic[6];
  file.read_at(0, magic);
  return has_numpy_magic(std::string_view(magic, 6));
}

NumpyHeader parse_numpy_header(std::string_view begin, const std::string& name) {
  const auto bad = [&](const std::string& what) {
    throw Error(ErrorCode::bad_data, "{}: NumPy header: {}", name, what);
  };
  if (begin.size() < 8) bad("the file ends within it");
  const int version = static_cast<uint8_t>(begin[6]);
  if (version < 1 || version > 3) bad(fmt::format("expected version 1 to 3, got {}", version));
  uint32_t n_header = 0;
  const size_t n_length = version == 1 ? 2 : 4;
  if (begin.size() < 8 + n_length) bad("the file ends within it");
  std::memcpy(&n_header, begin.data() + 8, n_length);
  if (n_header > kMaxHeader)
    bad(fmt::format("expected at most {} bytes, got {}", kMaxHeader, n_header));
  const size_t offset = 8 + n_length + n_header;
  if (offset > begin.size()) bad("the file ends within it");
  const auto values = Dictionary(begin.substr(8 + n_length, n_header), name).parse();
  for (const char* key : {"descr", "fortran_order", "shape"}) {
    if (!values.contains(key)) bad(fmt::format("expected key '{}', got none", key));
  }
  if (values.size() != 3) bad(fmt::format("expected 3 keys, got {}", values.size()));
  const std::string& order = values.at("fortran_order");
  if (order != "False" && order != "True")
    bad(fmt::format("'fortran_order' must be True or False, got {}", order));
  const auto shape = parse_shape(values.at("shape"));
  if (!shape) bad(fmt::format("expected lengths below 2^63, got ({})", values.at("shape")));
  return {values.at("descr"), *shape, order == "True", offset};
}

NumpyHeader read_numpy_header(const FileReader& file) {
  std::string begin(std::min(file.size(), kMaxNumpyHeader), '\0');
  file.read_at(0, begin);
  return parse_numpy_header(begin, "[shard] " + file.path());
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
