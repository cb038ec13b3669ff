// Rows of a stream of tokens with some of them hidden, for masked language modelling.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/inputs.h"
#include "data/row_source.h"
#include "data/token_stream.h"

namespace octet {

// The inputs and labels of masked language modelling, made of a row of tokens.
struct MaskingOptions {
  uint64_t seed = 0;
  int32_t mask_token = 0;
  int64_t vocab = 0;                         // random tokens are in [0, vocab)
  std::vector<int32_t> special_tokens = {};  // never chosen: [CLS], [SEP], padding, unknown, ...
  double chosen = 0.15;                      // share of all other tokens that are predicted
  double masked = 0.8, random = 0.1;         // shares of the chosen; the rest stay as they are
};

struct MaskedRow {
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;  // the token that stood there where one was chosen; kIgnoredLabel
};

// Each token that is not special is chosen by itself with probability `chosen`, and becomes the
// mask token, a random token (any of the vocabulary, itself too) or stays. Source: Devlin et al.
// 2018, "BERT", section 3.1, without whole words.
//
// Pure: the random words of a token are those of Philox at (seed, row, its place), so that a row is
// masked alike whatever was read before it, by whichever rank, and anew in each epoch where `row`
// counts rows since the run began. Shares are right to within 2^-32, random tokens uniform to
// within vocab / 2^32 of their probability.
class TokenMasking {
 public:
  // Throws Error{invalid_argument} unless mask and special tokens are in [0, vocab), vocab is below
  // 2^31, and shares are in [0, 1], masked + random as well.
  explicit TokenMasking(MaskingOptions options);
  // Throws Error{bad_data} for a token outside [0, vocab).
  MaskedRow mask(std::span<const int32_t> tokens, int64_t row) const;

 private:
  MaskingOptions options_;
  std::vector<bool> is_special_;                         // by token
  uint64_t chosen_below_, masked_below_, random_below_;  // of a word of 32 bits
};

struct MaskedRowsOptions {
  int64_t seq = 0;  // tokens a row, with those around them
  // Tokens around a text in each row: [CLS], [SEP]. A window that begins with the last token of
  // `before` gets it once.
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
