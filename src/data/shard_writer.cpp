#include "data/shard_writer.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/error.h"

namespace octet {
namespace {

// Version 1.0, padded so that the data begins at a multiple of 64 bytes. Source: numpy.lib.format.
std::string numpy_header(std::string_view descr, int64_t length) {
  constexpr size_t kBefore = 10;  // magic, version, length of the header
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}", descr, length);
  header.append(63 - (kBefore + header.size()) % 64, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xFF);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header;
}

}  // namespace

ShardWriter::ShardWriter(Files& files, std::string folder, int64_t vocab)
    : files_(files), folder_(std::move(folder)), width_(vocab <= 65536 ? 2 : 4) {}

void ShardWriter::add_document(std::span<const int32_t> ids) {
  const size_t at = bytes_.size();
  bytes_.resize(at + ids.size() * width_);
  char* to = bytes_.data() + at;
  for (const int32_t id : ids) {
    std::memcpy(to, &id, width_);
    to += width_;
  }
  ends_.push_back(static_cast<uint64_t>(n_tokens()));
}

void ShardWriter::close(int64_t index) {
  const std::string base = join_path(folder_, fmt::format("shard-{:05}", index));
  write_atomically(files_, base + ".ends",
                   [&](FileWriter& file) { file.write(std::as_bytes(std::span(ends_))); });
  write_atomically(files_, base + ".npy", [&](FileWriter& file) {
    file.write(as_bytes(numpy_header(width_ == 2 ? "<u2" : "<u4", n_tokens())));
    file.write(std::as_bytes(std::span(bytes_)));
  });
  bytes_.clear();
  ends_.clear();
}

}  // namespace octet
