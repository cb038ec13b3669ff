// The header of a .npy file. Source: numpy.lib.format's description, versions 1.0, 2.0 and 3.0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace octet {

struct NumpyHeader {
  std::string descr;  // "<u2"
  std::vector<int64_t> shape;
  bool by_column = false;  // Fortran's order: the first axis is the contiguous one
  uint64_t offset = 0;     // of the data
};

bool has_numpy_magic(std::string_view begin);
bool has_numpy_magic(const FileReader& file);

// The header of a file that begins with the magic; `begin` is its first bytes, as many of
// kMaxNumpyHeader as there are, and `name` what messages call it. Checks no shape against the data.
// Throws Error{bad_data}, "NAME: NumPy header: ...".
inline constexpr uint64_t kMaxNumpyHeader = 12 + (1 << 16);
NumpyHeader parse_numpy_header(std::string_view begin, const std::string& name);
NumpyHeader read_numpy_header(const FileReader& file);

// A header before data of this type and shape in C order: version 1.0, padded so that the data
// begins at a multiple of 64 bytes.
std::string numpy_header(std::string_view descr, const std::vector<int64_t>& shape);

}  // namespace octet
