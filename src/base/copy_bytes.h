// memcpy for ranges that may be empty, or one and the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace octet {

inline void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace octet
