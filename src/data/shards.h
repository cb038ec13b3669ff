// Token shards: files of little-endian token ids. Format: docs/formats/shards.md.
//   .npy  a real NumPy array (versions 1 to 3; 1-D; '<u2', '<u4', '<i4') when it starts with
//   NumPy's magic bytes;
//         otherwise a headerless array, as OLMo writes them
//   .bin  a headerless array
// Documents end where NAME.ends beside NAME.npy says, or else behind each end token.
// Shards are read in pieces when asked for, so they may be larger than memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

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

}  // namespace octet
