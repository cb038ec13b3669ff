// Vocabularies of SentencePiece's BPE: any two neighbours that make a token may be merged, the
// token of highest score first.
#pragma once

#include <string>
#include <vector>

#include "text/word_tokenizer.h"

namespace octet {

struct ScoredToken {
  std::string bytes;
  float score = 0;
  bool is_merged = true;  // false: no text makes it, such as a special token
};

// Sets vocabulary and merges; ids are positions in the list. Throws Error{bad_data}, "[tokenizer]
// NAME: token ID: ...".
void set_scored_tokens(TokenizerParts& parts, const std::vector<ScoredToken>& tokens);

}  // namespace octet
