// SentencePiece's BPE in a GGUF file (tokenizer.ggml.model "llama") and in a tokenizer.json: any
// two neighbours that make a token may be merged, the token of highest score first. In
// tokenizer.json they are a list of pairs in the order of their tokens' scores.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace octet {

// Tokens with their scores; a token that is not merged has none.
struct GgufScoredToken {
  std::string_view text;
  std::optional<float> score;
};
inline constexpr size_t kLongestScoredToken = 256;  // bytes of one that is merged

// [[left, right], ...]: of each merged token all pairs of tokens that make it; of equal scores the
// longer left first.
Json scored_merges(std::span<const GgufScoredToken> tokens);

// A tokenizer.json of a BPE of characters with bytes to fall back on. `around` is its
// post-processor; `adds_space`: each part of a text between added tokens begins with a space.
struct GgufScoredParts {
  Json vocab, merges, added_tokens, around;
  std::string_view unknown;
  bool adds_space = true;
};
Json scored_tokenizer_json(GgufScoredParts parts);

// True if each part begins with a space, of a tokenizer.json whose steps are those of such a BPE;
// nothing for other steps.
std::optional<bool> scored_tokenizer_adds_space(const Json& tokenizer);
// The scores of its tokens by id, of those that no pair makes the lowest; nothing where the pairs
// are not all of each token (but added ones), or not in an order of tokens.
std::optional<std::vector<float>> scores_of_merges(const Json& tokenizer, size_t n_tokens);

}  // namespace octet
