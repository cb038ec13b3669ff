// Writes shards: NAME.npy with the tokens, NAME.ends with the documents' ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace octet {

class ShardWriter {
 public:
  // vocab: up to 65,536 tokens are two bytes wide, more four.
  ShardWriter(Files& files, std::string folder, int64_t vocab);
  void add_document(std::span<const int32_t> ids);
  int64_t n_tokens() const { return static_cast<int64_t>(bytes_.size() / width_); }
  // Writes what was added as shard-INDEX and begins another; the tokens come last. A file that is
  // there stays: with the same bytes it is what a killed run wrote, with others it is an
  // Error{invalid_argument}.
  void close(int64_t index);

 private:
  void put(const std::string& path, std::span<const std::span<const std::byte>> parts);

  Files& files_;
  std::string folder_;
  size_t width_;
  std::vector<char> bytes_;
  std::vector<uint64_t> ends_;
};

// The number of a shard's file, "shard-00012.npy" or ".ends"; nothing for another name.
std::optional<int64_t> shard_index(std::string_view name);

}  // namespace octet
