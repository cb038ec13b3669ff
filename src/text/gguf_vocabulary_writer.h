// A tokenizer.json as the vocabulary of a GGUF file: the keys that gguf_vocabulary.h reads back, as
// llama.cpp's converter writes them for a byte-level BPE, or SentencePiece's BPE.
#pragma once

#include <map>
#include <string>

#include "base/gguf_keys.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace octet {

struct GgufVocabularySource {
  std::string path;                              // of tokenizer.json, for errors
  const Json& tokenizer;                         // tokenizer.json
  const Json& config;                            // tokenizer_config.json, or an empty object
  const Json& generation;                        // generation_config.json, or an empty object
  const Tokenizer& reader;                       // of the same file: what stands around texts
  std::map<std::string, std::string> templates;  // "default" and those of other names
};

// `n_rows`: of the embedding; ids without a token are written as unused ones. Throws
// Error{invalid_argument}, "[convert] PATH: ...", for what a GGUF file has no key for: another
// model than these, words or a normalizer that tokenizer.ggml.pre does not name, added
// tokens that take the white space beside them, stand alone, or are normalized where that puts a
// space before them, other ends of texts than BOS and EOS, more than three ends of answers, more
// tokens than rows; affixes of a byte-level BPE.
void add_gguf_vocabulary(GgufKeys& keys, const GgufVocabularySource& source, int64_t n_rows);

}  // namespace octet
