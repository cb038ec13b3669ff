// Arrays of a .npz file: a zip archive of .npy files, stored or deflated, little endian; by row
// here, matrices that lie by column too.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace octet::test {

struct NpzArray {
  std::string type;  // as numpy writes it: "<f4", "|u1"
  std::vector<int64_t> shape;
  std::string bytes;

  template <typename T>
  std::vector<T> values() const {
    std::vector<T> all(bytes.size() / sizeof(T));
    std::memcpy(all.data(), bytes.data(), all.size() * sizeof(T));
    return all;
  }
};

using Npz = std::map<std::string, NpzArray>;

// Throws std::runtime_error where the file is no such archive.
Npz read_npz(const std::string& path);

}  // namespace octet::test
