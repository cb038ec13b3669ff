#include "base/gguf.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

#include "base/utf8.h"

namespace octet {
namespace {

constexpr size_t kWidths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // by type; 0: see its length
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kFirstPiece = 16 << 20;   // bytes, tried first
constexpr uint64_t kMaxHeader = 1ull << 30;  // bytes

}  // namespace

bool is_gguf_name(std::string_view path) {
  constexpr std::string_view kEnding = ".gguf";
  const std::string_view end = path.substr(path.size() - std::min(path.size(), kEnding.size()));
  return std::ranges::equal(end, kEnding, [](char got, char small) {
    return got == small || (small != '.' && got == small - 'a' + 'A');
  });
}

class GgufHeader::Cursor {
 public:
  Cursor(std::string_view bytes, const GgufHeader& header)
      : whole_(bytes.size()), rest_(bytes), header_(header) {}

  std::string_view take(uint64_t n) {
    if (n > rest_.size()) header_.bad("expected a whole GGUF file, got its start");
    const std::string_view bytes = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return bytes;
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view string() { return take(number<uint64_t>()); }
  std::string_view text(std::string_view what) { return header_.text(string(), what); }

  Value value() {
    Value value;
    value.type = GgufType{number<uint32_t>()};
    if (value.type == GgufType::array) {
      value.is_array = true;
      value.type = GgufType{number<uint32_t>()};
      value.n = number<uint64_t>();
    }
    const auto type = static_cast<uint32_t>(value.type);
    const std::string_view before = rest_;
    if (value.type == GgufType::string) {
      for (uint64_t i = 0; i < value.n; ++i) string();
    } else if (type < std::size(kWidths) && kWidths[type] > 0) {
      if (value.n > rest_.size()) take(value.n);
      take(value.n * kWidths[type]);
    } else {
      header_.bad("expected values of a known type, got type {}", type);
    }
    value.bytes = before.substr(0, before.size() - rest_.size());
    return value;
  }

  uint64_t n_taken() const { return whole_ - rest_.size(); }

 private:
  uint64_t whole_;
  std::string_view rest_;
  const GgufHeader& header_;
};

GgufHeader::GgufHeader(std::string_view bytes, std::string op, std::string path, Tensors tensors)
    : op_(std::move(op)), path_(std::move(path)) {
  Cursor cursor(bytes, *this);
  if (cursor.take(4) != "GGUF") bad("expected a GGUF file, got other data");
  const auto version = cursor.number<uint32_t>();
  if (version < 2 || version > 3) bad("expected GGUF version 2 or 3, got {}", version);
  const auto n_tensors = cursor.number<uint64_t>();
  const auto n = cursor.number<uint64_t>();
  for (uint64_t i = 0; i < n; ++i) {
    std::string key(cursor.text("a key"));
    if (has(key)) bad("expected each key once, got two '{}'", key);
    values_[std::move(key)] = cursor.value();
  }
  if (tensors == Tensors::read) read_tensors(cursor, n_tensors);
}

void GgufHeader::read_tensors(Cursor& cursor, uint64_t n) {
  std::set<std::string_view> names;
  for (uint64_t i = 0; i < n; ++i) {
    const std::string_view name = cursor.text("a tensor's name");
    if (!names.insert(name).second) bad("expected each tensor once, got two '{}'", name);
    GgufTensor tensor{.name = std::string(name), .shape = {}};
    const auto n_dimensions = cursor.number<uint32_t>();
    if (n_dimensions < 1 || n_dimensions > kMaxDimensions) {
      bad("'{}': expected 1 to {} dimensions, got {}", name, kMaxDimensions, n_dimensions);
    }
    uint64_t n_elems = 1;
    for (uint32_t axis = 0; axis < n_dimensions; ++axis) {
      const auto extent = cursor.number<uint64_t>();
      if (extent < 1 || extent > (uint64_t{1} << 48) / n_elems)
        bad("'{}': expected 1 to 2^48 elements, got others", name);
      n_elems *= extent;
      tensor.shape.push_back(static_cast<int64_t>(extent));
    }
    std::reverse(tensor.shape.begin(), tensor.shape.end());
    tensor.type = cursor.number<uint32_t>();
    tensor.offset = cursor.number<uint64_t>();
    tensors_.push_back(std::move(tensor));
  }
  const std::string key = "general.alignment";
  const uint64_t alignment = has(key) ? number(key) : 32;
  if (alignment == 0 || (alignment & (alignment - 1)) != 0)
    bad("expected an alignment that is a power of two, got {}", alignment);
  n_bytes_ = (cursor.n_taken() + alignment - 1) / alignment * alignment;
  for (const GgufTensor& tensor : tensors_) {
    if (tensor.offset % alignment != 0) {
      bad("'{}': expected an offset that is a multiple of {}, got {}", tensor.name, alignment,
          tensor.offset);
    }
  }
}

const GgufHeader::Value& GgufHeader::find(const std::string& key, GgufType type,
                                          bool is_array) const {
  const auto it = values_.find(key);
  if (it == values_.end() || it->second.type != type || it->second.is_array != is_array) {
    bad("expected the key '{}' with its usual type", key);
  }
  return it->second;
}

std::string_view GgufHeader::text(std::string_view bytes, std::string_view what) const {
  if (find_invalid_utf8(bytes) != bytes.npos) bad("{}: expected UTF-8, got other bytes", what);
  return bytes;
}

std::vector<std::string> GgufHeader::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

std::vector<std::string_view> GgufHeader::strings(const std::string& key) const {
  const Value& value = find(key, GgufType::string, true);
  Cursor cursor(value.bytes, *this);
  std::vector<std::string_view> strings;
  for (uint64_t i = 0; i < value.n; ++i) {
    const std::string_view one = cursor.string();
    if (find_invalid_utf8(one) != one.npos) text(one, fmt::format("'{}', element {}", key, i));
    strings.push_back(one);
  }
  return strings;
}

std::string GgufHeader::string(const std::string& key) const {
  Cursor cursor(find(key, GgufType::string, false).bytes, *this);
  return std::string(cursor.text(fmt::format("'{}'", key)));
}

std::vector<int32_t> GgufHeader::integers(const std::string& key) const {
  const Value& value = find(key, GgufType::i32, true);
  std::vector<int32_t> integers(value.n);
  if (value.n > 0) std::memcpy(integers.data(), value.bytes.data(), value.bytes.size());
  return integers;
}

std::vector<int64_t> GgufHeader::numbers(const std::string& key) const {
  const auto it = values_.find(key);
  const bool is_signed = it != values_.end() && it->second.type == GgufType::i32;
  const Value& value = find(key, is_signed ? GgufType::i32 : GgufType::u32, true);
  Cursor cursor(value.bytes, *this);
  std::vector<int64_t> numbers;
  for (uint64_t i = 0; i < value.n; ++i) {
    numbers.push_back(is_signed ? int64_t{cursor.number<int32_t>()}
                                : int64_t{cursor.number<uint32_t>()});
  }
  return numbers;
}

std::vector<float> GgufHeader::reals(const std::string& key) const {
  const Value& value = find(key, GgufType::f32, true);
  std::vector<float> reals(value.n);
  if (value.n > 0) std::memcpy(reals.data(), value.bytes.data(), value.bytes.size());
  return reals;
}

uint32_t GgufHeader::number(const std::string& key) const {
  return Cursor(find(key, GgufType::u32, false).bytes, *this).number<uint32_t>();
}

float GgufHeader::real(const std::string& key) const {
  return Cursor(find(key, GgufType::f32, false).bytes, *this).number<float>();
}

std::string GgufHeader::shown(const std::string& key, GgufType type) const {
  if (type == GgufType::string) return string(key);
  if (type == GgufType::boolean) return flag(key) ? "true" : "false";
  if (type == GgufType::f32) return fmt::to_string(real(key));
  if (type == GgufType::u32) return fmt::to_string(number(key));
  if (type == GgufType::i32)
    return fmt::to_string(Cursor(find(key, type, false).bytes, *this).number<int32_t>());
  CHECK(type == GgufType::u16);
  return fmt::to_string(Cursor(find(key, type, false).bytes, *this).number<uint16_t>());
}

std::string read_gguf_header(const Files& files, const std::string& path) {
  const std::unique_ptr<FileReader> file = files.open(path);
  const uint64_t most = std::min(file->size(), kMaxHeader);
  for (uint64_t n = std::min(kFirstPiece, most);; n = std::min(4 * n, most)) {
    std::string bytes(n, '\0');
    file->read_at(0, bytes);
    if (n == most) return bytes;
    try {
      const GgufHeader header(bytes, "gguf", path, GgufHeader::Tensors::read);
      return bytes;
    } catch (const Error&) {  // of a header that is longer; what is wrong is told of the whole
    }
  }
}

}  // namespace octet
