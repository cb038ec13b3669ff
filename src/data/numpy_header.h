// The header of a .npy file. Source: numpy.lib.format's description, versions 1.0, 2.0 and 3.0.
#pragma once

#include <cstdint>
#include <string>

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

}  // namespace octet
