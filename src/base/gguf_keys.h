// The key-value pairs of a GGUF file, version 3, as they are written: in the order of the calls.
// Source: the GGUF specification.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/gguf.h"

namespace octet {

template <typename T>
void put_gguf(std::string& bytes, T value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  bytes.append(raw, sizeof value);
}
inline void put_gguf_text(std::string& bytes, std::string_view text) {
  put_gguf(bytes, uint64_t{text.size()});
  bytes += text;
}

class GgufKeys {
 public:
  void add(std::string_view key, uint32_t value) { begin(key, GgufType::u32), put(value); }
  void add(std::string_view key, float value) { begin(key, GgufType::f32), put(value); }
  void add_flag(std::string_view key, bool value) {
    begin(key, GgufType::boolean);
    put(static_cast<uint8_t>(value ? 1 : 0));
  }
  void add(std::string_view key, std::string_view value) {
    begin(key, GgufType::string);
    put_text(value);
  }
  void add(std::string_view key, std::span<const std::string> values) {
    begin_list(key, GgufType::string, values.size());
    for (const std::string& value : values) put_text(value);
  }
  void add(std::string_view key, std::span<const int32_t> values) {
    begin_list(key, GgufType::i32, values.size());
    for (const int32_t value : values) put(value);
  }
  void add(std::string_view key, std::span<const float> values) {
    begin_list(key, GgufType::f32, values.size());
    for (const float value : values) put(value);
  }

  uint64_t size() const { return n_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void put(auto value) { put_gguf(bytes_, value); }
  void put_text(std::string_view text) { put_gguf_text(bytes_, text); }
  void begin(std::string_view key, GgufType type) {
    ++n_;
    put_text(key);
    put(static_cast<uint32_t>(type));
  }
  void begin_list(std::string_view key, GgufType type, uint64_t n) {
    begin(key, GgufType::array);
    put(static_cast<uint32_t>(type));
    put(n);
  }

  uint64_t n_ = 0;
  std::string bytes_;
};

}  // namespace octet
