// Writes shards: NAME.npy with the tokens, NAME.ends with the documents' ends.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"

namespace octet {

class ShardWriter {
 public:
  // vocab: up to 65,536 tokens are two bytes wide, more four.
  ShardWriter(Files& files, std::string folder, int64_t vocab);
  void add_document(std::span<const int32_t> ids);
  int64_t n_tokens() const { return static_cast<int64_t>(bytes_.size() / width_); }
  // Writes what was added as shard-INDEX and begins another. Each file replaces an old one whole;
  // the tokens come last.
  void close(int64_t index);

 private:
  Files& files_;
  std::string folder_;
  size_t width_;
  std::vector<char> bytes_;
  std::vector<uint64_t> ends_;
};

}  // namespace octet
