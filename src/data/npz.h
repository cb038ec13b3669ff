// Arrays by name in a .npz file: a zip archive of .npy files. Source: numpy.savez's description,
// and the ZIP application note (stored and deflated members, ZIP64).
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/files.h"

namespace octet {

struct NumpyArray {
  std::string descr;  // "<f4", "|u1": little-endian
  std::vector<int64_t> shape;
  std::string bytes;  // in C order

  template <typename T>
  std::vector<T> values() const {
    std::vector<T> all(bytes.size() / sizeof(T));
    std::memcpy(all.data(), bytes.data(), all.size() * sizeof(T));
    return all;
  }
};

// By the member's name without ".npy".
using NumpyArrays = std::map<std::string, NumpyArray>;

// Arrays in Fortran's order come in C order. Throws Error{bad_data}, "PATH: ..." or "PATH: NAME:
// ...", for what is no such archive, a damaged member (its CRC-32 is checked), one that is packed
// otherwise or encrypted, a type that is no number, and a shape that its bytes do not have.
NumpyArrays read_npz(const Files& files, const std::string& path);

// Stored, as numpy.savez does; in the order of names. Throws Error{invalid_argument} for more than
// 4 GiB, before it writes.
void write_npz(Files& files, const std::string& path, const NumpyArrays& arrays);

}  // namespace octet
