// A run's data: files and folders in, a training and a validation stream of tokens out.
//
// A path is a token shard (.npy, .bin), a text file (packed ones are unpacked), or a folder. A
// folder stands for its readable text files, recursively and sorted; where it has none, for its
// shards. A document is a file, or a part of one between separators. Text is tokenized into a
// cache, or without one into memory; shards stay on disk. What cannot be read of a folder is left
// out with a warning; what was named itself must be readable.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/input_limits.h"
#include "base/log.h"
#include "data/row_source.h"
#include "data/shards.h"
#include "data/token_cache.h"
#include "data/token_stream.h"
#include "text/tokenizer.h"

namespace octet {

// The part held out of the end of the training data: so many tokens, or whole documents as near to
// that as they come. A single document is cut all the same.
enum class HoldOut : uint8_t { tokens, documents };

class PreferenceRows;

struct DatasetOptions {
  std::vector<std::string> train = {};
  std::vector<std::string> val = {};  // empty: the end of train that is held out
  double val_fraction = 0.1;          // how much of it, also beside val; from 0 (none) to below 1
  HoldOut hold_out = HoldOut::tokens;
  std::string document_separator = {};  // "<|endoftext|>": parts are stripped of white space;
                                        // empty: a file is a document
  DocumentEnd document_end = DocumentEnd::eos;  // none: text goes into memory, without a cache
  uint64_t max_text_bytes = input_limits().max_unpacked_bytes;  // in memory
  TokenCache* cache = nullptr;  // of the same tokenizer and separator; or none
  ShardOptions shards = {};     // vocab 0: the tokenizer's
  Log log = {};
};

struct Dataset {
  TokenStream train, val;
  // Samples of other arrays, beside which there is no text; no val_rows: nothing to evaluate.
  std::shared_ptr<const RowSource> train_rows = {}, val_rows = {};
  // Pairs of answers that a reference model judges (data/preference_rows.h): those whose numbers a
  // run sets before it reads them, of which the rows above are parts.
  std::vector<std::shared_ptr<PreferenceRows>> references = {};
  std::vector<std::string> label_names = {};  // of samples with names of classes, by number
  int64_t n_sources = 0;
  int64_t n_skipped = 0;  // files of folders that are not readable text
};

// `files` must outlive the result. Throws Error{bad_data} where a path is missing, not text, or
// holds no tokens.
Dataset open_dataset(const Files& files, const DatasetOptions& options, const Tokenizer& tokenizer);

// The first token of the end of a stream that is held out.
int64_t held_out_start(const TokenStream& stream, double fraction, HoldOut how);

// Data that is token ids already, and so needs no tokenizer.
//
// Whether each path is a token shard, or a folder without a file that a tokenizer would read.
bool are_token_shards(const Files& files, std::span<const std::string> paths);

// In the place of a tokenizer: `vocab` tokens, none that ends a document. Text, either way, is
// Error{invalid_argument}.
std::unique_ptr<Tokenizer> no_tokenizer(int64_t vocab);

}  // namespace octet
