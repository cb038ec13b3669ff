// Tokens behind a vocabulary's, as a model is exported: `octet convert --add-tokens`.
//
// Ids      go on behind the tokenizer's highest one.
// Rows     of the embedding, and of a head (and its bias) that is not tied to it: each new one is
// the
//          mean of the rows of the tokens before, summed in double and rounded once to the tensor's
//          type. Rows that a padded vocabulary has left over are taken first, and the others of
//          them stay as they are; a vocabulary without enough grows to the last new token.
// Files    tokenizer.json gets them among its added_tokens, tokenizer_config.json among its
//          added_tokens_decoder where it has one, config.json the vocab_size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infer/export.h"
#include "infer/model_source.h"
#include "text/added_tokens.h"

namespace octet {

// Tokens of a text file, one a line, none of them special; or of a file named *.jsonl, an object a
// line: `content`, and special, lstrip, rstrip, single_word, normalized as in tokenizer.json. A
// token that is not special is looked for in normalized text, unless a line says otherwise. Ids are
// not set. Throws Error{bad_data}, "[add-tokens] PATH:LINE: expected ..., got ...".
std::vector<AddedToken> read_new_tokens(const Files& files, const std::string& path);

class AddedVocabulary {
 public:
  // Throws Error{invalid_argument} where the model writes no text or has no tokenizer.json;
  // Error{bad_data} naming a token that the tokenizer has.
  AddedVocabulary(const Files& files, const ModelSource& source, std::vector<AddedToken> tokens);

  int64_t vocab() const { return vocab_; }  // of the model, with them
  // The same tensors with their rows. Throws Error{bad_data} where rows are stored in 8 bits.
  std::vector<TensorSource> with_rows(std::vector<TensorSource> tensors) const;
  // Into the tokenizer's files of a folder.
  void put_tokens(Files& files, const std::string& folder) const;

 private:
  std::vector<AddedToken> tokens_;  // with ids
  std::vector<std::string> names_;  // of parameters with a row a token
  int64_t n_before_ = 0, vocab_ = 0;
};

}  // namespace octet
