// One file of a token cache: its tokens, where documents start, and a trailer that tells what they
// are made of. Format: docs/formats/shards.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/hash.h"
#include "base/temporary_file.h"
#include "data/token_cache.h"

namespace octet {

struct CachedTokensHeader {
  uint64_t key = 0;  // of the content that it is made of
  int width = 0;     // bytes a token
};

// Reads all of the file once. Throws Error{bad_data} where it is damaged or made of other content.
CachedText open_cached_tokens(const Files& files, const std::string& path,
                              const CachedTokensHeader& expected);

class CachedTokensWriter {
 public:
  CachedTokensWriter(Files& files, const std::string& path, const CachedTokensHeader& header);
  void add_document(std::span<const int32_t> ids);
  int64_t n_tokens() const { return n_tokens_; }
  void close(int64_t n_texts);  // in place, whole and on the medium

 private:
  void flush();

  CachedTokensHeader header_;
  TemporaryFile file_;
  Xxh64 identity_;
  int64_t n_tokens_ = 0;
  std::vector<int64_t> starts_;
  std::vector<std::byte> buffer_;  // not written yet
};

}  // namespace octet
