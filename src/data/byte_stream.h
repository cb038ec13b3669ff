// The bytes of a file in order, unpacked: gzip, bzip2, xz and zstd by their first bytes, whatever
// the name. A name that promises packed data (.gz, .bz2, .xz, .zst) and holds other is an error.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
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
};

// The file may hold several packed streams, one after the other. Throws Error{bad_data} where the
// name alone says that it is packed.
std::unique_ptr<ByteStream> open_stream(std::unique_ptr<FileReader> file);
std::unique_ptr<ByteStream> open_stream(const Files& files, const std::string& path);

// All of it; nothing where it is more than max_bytes.
std::optional<std::string> read_unpacked(std::unique_ptr<FileReader> file, uint64_t max_bytes);

// The name in small letters without .gz, .bz2, .xz, .zst: what its ending says of the data.
std::string unpacked_name(const std::string& path);

}  // namespace octet
