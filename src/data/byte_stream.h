// The bytes of a file in order, unpacked: .gz, .bz2, .xz and .zst by their first bytes, not
// their names.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/files.h"

namespace octet {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Fills the front of `out`, which is not empty; 0: the end. Throws Error{bad_data}, "[data] PATH:
  // ...", for packed data that is damaged or cut short.
  virtual size_t read(std::span<char> out) = 0;
  virtual bool is_packed() const { return true; }
};

// The file may hold several packed streams, one after the other.
std::unique_ptr<ByteStream> open_stream(std::unique_ptr<FileReader> file);
std::unique_ptr<ByteStream> open_stream(const Files& files, const std::string& path);

// The name without .gz, .bz2, .xz, .zst.
std::string unpacked_name(const std::string& path);

}  // namespace octet
