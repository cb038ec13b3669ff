// The tokens of a source and of a target, as a model that translates reads them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/encode_texts.h"
#include "text/tokenizer.h"

namespace octet {

// Tokens that end both: what the tokenizer's file puts behind a text, else its end of text. Throws
// Error{invalid_argument} "data.tokenizer: ..." for one that has neither.
std::vector<int32_t> ending_tokens(const Tokenizer& tokenizer);

struct TranslationText {
  std::vector<int32_t> ids;
  bool is_cut = false;  // the text has lost its end, or its start
};

struct TranslationTextOptions {
  int64_t max_tokens = 0;  // with what ends the text; 0: any number
  CutSide cut = CutSide::end;
  EncodeTextOptions text = {};
};

// With what ends it. A source also has what the tokenizer's file puts in front. Throws as
// Tokenizer::encode(), and Error{invalid_argument} where no token of a text has room.
TranslationText source_tokens(const Tokenizer& tokenizer, std::string_view text,
                              const TranslationTextOptions& options = {});
TranslationText target_tokens(const Tokenizer& tokenizer, std::string_view text,
                              const TranslationTextOptions& options = {});

}  // namespace octet
