// Rows of a stream of tokens with some of them hidden, for masked language modelling.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/inputs.h"
#include "data/masked_tokens.h"
#include "data/row_source.h"
#include "data/token_stream.h"

namespace octet {

struct MaskedRowsOptions {
  int64_t seq = 0;  // tokens a row, with those around them
  // What stands around a text in each row: [CLS], [SEP]. A window that begins with the last token
  // of `before` gets it once.
  std::vector<int32_t> before = {}, behind = {};
  int32_t padding = 0;
  InputSpec labels = {.name = ""};  // as a run declares them, a token
  MaskingOptions masking = {};      // its seed is the run's
};

// Sample i is window i of the stream: its next seq - |before| - |behind| tokens, the last one what
// is left. Which tokens are hidden hangs in training on the seed and the row's number in the run,
// so that epochs differ and a run that goes on reads the same; in evaluations on the row's number
// alone, whatever the seed. Throws Error{invalid_argument} where a row has no room for a token of
// the stream, or masking options are none.
std::shared_ptr<const RowSource> masked_rows(TokenStream stream, MaskedRowsOptions options);

}  // namespace octet
