// Token shards: files of little-endian token ids. Format: docs/formats/shards.md.
//   .npy  a real NumPy array (versions 1 to 3; 1-D; '<u2', '<u4', '<i4') when it starts with
//   NumPy's magic bytes;
//         otherwise a headerless array, as OLMo writes them
//   .bin  a headerless array
// Documents end where NAME.ends beside NAME.npy says, or else behind each end token.
// Shards are read in pieces when asked for, so they may be larger than memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "data/token_stream.h"

namespace octet {

enum class TokenWidth {
  infer,
  u16,
  u32
};  // of headerless shards; infer: u16 up to a vocabulary of 65,536

struct ShardOptions {
  TokenWidth width = TokenWidth::infer;
  int64_t vocab = 0;                // ids must be below; 0: not known, then ids must be below 2^31
  std::optional<int32_t> eos = {};  // ends a document, where no file beside the shard says so
};

struct ArrayLayout {
  enum class Element { u16, u32, i32 };
  Element element = Element::u16;
  uint64_t offset = 0;  // of the first element
  int64_t n_tokens = 0;
};

// The layout of a shard, checked against the file's size. Throws Error{bad_data}, "[shard] PATH:
// expected ..., got ...".
ArrayLayout read_layout(const Files& files, const std::string& path, const ShardOptions& options);

bool is_shard_name(std::string_view path);  // .npy or .bin

// `files` must outlive the source, which opens the file for each read: no limit on the number of
// shards. Reading throws Error{bad_data} at an id outside the vocabulary, with its position.
std::shared_ptr<const TokenSource> shard_source(const Files& files, const std::string& path,
                                                const ShardOptions& options);

// Writes shards: NAME.npy with the tokens, NAME.ends with the documents' ends.
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
  std::vector<std::byte> bytes_;
  std::vector<int64_t> ends_;
};

// The number of a shard's file, "shard-00012.npy" or ".ends"; nothing for another name.
std::optional<int64_t> shard_index(std::string_view name);

}  // namespace octet
