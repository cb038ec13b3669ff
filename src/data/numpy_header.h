// The header of a .npy file. Source: numpy.lib.format's description, versions 1.0, 2.0 and 3.0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace octet {

struct NumpyHeader {
  std::string descr;    // "<u2"
  int64_t length = 0;   // of the one dimension
  uint64_t offset = 0;  // of the data
};

bool has_numpy_magic(const FileReader& file);

// Call where has_numpy_magic. Accepts one dimension in C order; checks no length against the data.
// Throws Error{bad_data}, "[shard] PATH: NumPy header: ...".
NumpyHeader read_numpy_header(const FileReader& file);

// A header before data of this type and shape in C order: version 1.0, padded so that the data
// begins at a multiple of 64 bytes.
std::string numpy_header(std::string_view descr, const std::vector<int64_t>& shape);

}  // namespace octet
