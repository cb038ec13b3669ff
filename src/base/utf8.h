// Characters of UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace octet {

inline constexpr int32_t kInvalid = -1;

struct Character {
  int32_t code = kInvalid;  // kInvalid: one byte that begins no character
  size_t length = 1;        // bytes
};

// The character at text[at]; at < text.size(). No overlong forms, no surrogates.
inline Character decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> uint32_t {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const uint32_t first = byte(0);
  if (first < 0x80) return {static_cast<int32_t>(first), 1};
  if (first < 0xC2 || first > 0xF4) return {};
  const size_t n = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  uint32_t code = first & (0x7Fu >> n);
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0u) != 0x80u) return {};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  const uint32_t least = n == 2 ? 0x80 : n == 3 ? 0x800 : 0x10000;
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  if (code < least || code > 0x10FFFF || is_surrogate) return {};
  return {static_cast<int32_t>(code), n};
}

// The first byte that is no UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);

}  // namespace octet
