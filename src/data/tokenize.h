// Text files to token shards. Format: docs/formats/shards.md.
//
// Documents keep their order; each lies whole in one shard, with the tokenizer's bos before it or,
// where it has none, its eos behind it. A shard is closed at the end of the document that fills it.
// The bytes written are the same for any number of threads, and for a run that was interrupted and
// went on: what is done is written to OUT/tokenize.json after each shard.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/documents.h"
#include "text/tokenizer.h"

namespace octet {

struct TokenizeOptions {
  std::vector<std::string> paths = {};
  std::string out = {};
  DocumentOptions documents = {};
  int64_t shard_tokens = int64_t{1} << 24;
  bool adds_special = true;
  int threads = 0;  // 0: one per core that this process may use
};

struct TokenizeReport {
  int64_t n_files = 0;  // read so far, of n_files_in_all
  int64_t n_files_in_all = 0;
  int64_t n_documents = 0, n_tokens = 0, n_bytes = 0;  // written; n_bytes of text
  int64_t n_shards = 0;
  std::map<std::string, int64_t> dropped = {};  // documents, by why
  std::vector<std::string> problems = {};       // what of the folders is left out, and why
  double encode_seconds = 0;  // processor time of all threads, of this run, encoding alone
  bool is_done = false;       // false: it was told to stop
};

struct TokenizeHooks {
  std::function<void(const TokenizeReport&)> on_progress = {};  // after each batch of documents
  std::function<bool()> stops = {};                             // asked before each batch
};

// Throws Error{bad_data} for files that cannot be read, and Error{invalid_argument} where `out`
// holds the shards of other inputs, another tokenizer or other options.
TokenizeReport tokenize_files(Files& files, const Tokenizer& tokenizer,
                              const TokenizeOptions& options, const TokenizeHooks& hooks = {});

inline constexpr const char* kTokenizeManifest = "tokenize.json";

}  // namespace octet
