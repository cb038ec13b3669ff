// Text tokenized once: a file of tokens and of where documents start, kept beside a run.
//
// A cache file is found by what is asked for (the paths, the tokenizer, the separator) and holds a
// hash of the content that it was made of: where that differs, or where the file is damaged, it is
// made again. Files are written whole, under names of their own until then, so that runs that start
// together do not disturb each other; memory holds one batch of documents. The bytes are the same
// for any number of threads. Format: docs/formats/shards.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/token_stream.h"
#include "text/tokenizer.h"

namespace octet {

struct TokenizeProgress {
  std::string name = {};
  uint64_t n_bytes = 0, n_bytes_in_all = 0;  // of text; of the files, as they lie
  int64_t n_tokens = 0;
  bool is_done = false;
};

struct TokenCacheOptions {
  std::string folder = {};          // made when it is needed
  std::string tokenizer_path = {};  // as make_tokenizer takes it; its files' content counts
  std::string separator = {};       // between documents; empty: a file is a document
  int threads = 0;                  // 0: one per core that this process may use
  uint64_t max_document_bytes = uint64_t{4} << 30;
  std::function<void(const TokenizeProgress&)> on_progress = {};  // after each batch of documents
  Log log = {};
};

// Files that make one source. What is not readable text is left out of a folder, and an Error where
// the file itself was named.
struct TextInput {
  enum class Origin { named, folder };
  Origin origin = Origin::named;
  std::string path = {};                // of the file or the folder
  std::vector<std::string> files = {};  // in order
};

struct CachedText {
  std::shared_ptr<const TokenSource> source;  // of the same tokens and identity as TextBuilder's
  int64_t n_texts = 0;                        // files that it is made of
};

class TokenCache {
 public:
  TokenCache(Files& files, const Tokenizer& tokenizer, const TokenCacheOptions& options);
  // Throws Error{bad_data} for a named file that is no text, Error{io} where the cache cannot be
  // written.
  CachedText open(const TextInput& input);

 private:
  std::string path_of(const TextInput& input) const;
  uint64_t content_key(const TextInput& input, uint64_t& n_bytes) const;

  Files& files_;
  const Tokenizer& tokenizer_;
  TokenCacheOptions options_;
  uint64_t tokenizer_key_ = 0;
};

// Adds each token of a vocabulary to a hash.
void add_vocabulary(Xxh64& hash, const Tokenizer& tokenizer);
// A hash of everything that decides what a tokenizer makes of text: its files' content, and what it
// makes of a sample.
uint64_t tokenizer_identity(const Files& files, const std::string& path,
                            const Tokenizer& tokenizer);

}  // namespace octet
