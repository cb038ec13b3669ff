// Values as their bytes, and copies of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace octet {

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}
// Bytes of values that lie side by side: a vector, an array, a span.
template <typename Values>
requires(!std::is_convertible_v<const Values&, std::string_view>)
    std::span<const std::byte> as_bytes(const Values& values) {
  return std::as_bytes(std::span(values));
}

// memcpy for ranges that may be empty, or one and the same.
inline void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace octet
