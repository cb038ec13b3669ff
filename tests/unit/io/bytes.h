// Little pieces of files for the tests of readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace octet::test {

// A safetensors file: length, header, data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  const uint64_t n = header.size();
  return std::string(reinterpret_cast<const char*>(&n), 8) + header + data;
}

inline std::string as_string(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace octet::test
