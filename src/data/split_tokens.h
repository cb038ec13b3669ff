// Special tokens of a model's folder that a tokenizer does not have as tokens of their own.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/files.h"
#include "text/tokenizer.h"

namespace octet {

struct SplitToken {
  std::string text;
  std::string where;  // the file that says that it is a token
  size_t n_tokens = 0;
};

// Of tokenizer_config.json, special_tokens_map.json and added_tokens.json of these folders; paths
// that are none are left out. None for the byte tokenizer. Throws Error{bad_data} for a file that
// is no JSON.
std::vector<SplitToken> split_tokens(const Files& files, const std::vector<std::string>& folders,
                                     const Tokenizer& tokenizer);

}  // namespace octet
