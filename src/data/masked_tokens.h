// The inputs and labels of masked language modelling, made of a row of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace octet {

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

}  // namespace octet
