// The next token of a text, from the logits behind its last one.
//
// As transformers: the logits of tokens that the text holds already are divided by the repetition
// penalty where positive, multiplied where negative (Keskar et al. 2019); then the temperature;
// then top-k; then top-p, the most probable tokens up to the first with which their sum reaches p
// (Holtzman et al. 2020); then min-p, those of at least p times the highest probability (Nguyen et
// al. 2024). Each step sees the probabilities that the steps before it left. All in double, in the
// order of the ids; equal logits rank by id. Random choices are Philox words keyed by the seed and
// counted by the new tokens of the text: they depend on nothing else.
#pragma once

#include <cstdint>
#include <span>

namespace octet {

struct Sampling {
  double temperature = 0;         // 0: the most probable token, the lowest id of equals
  int64_t top_k = 0;              // 0: all
  double top_p = 1;               // in (0, 1]
  double min_p = 0;               // in [0, 1)
  double repetition_penalty = 1;  // above 0
  uint32_t seed = 1;
};

// The most probable token, as the logits are.
constexpr bool is_greedy(const Sampling& sampling) {
  return sampling.temperature == 0 && sampling.repetition_penalty == 1;
}

// Throws Error{invalid_argument} "[generate] NAME: expected ..., got ..." for what is not such.
void check_sampling(const Sampling& sampling);

// Throws Error{numerics} for NaN, of the token behind `n_tokens`.
void check_logit(float logit, size_t n_tokens);

// `text`: the prompt and the new tokens so far, of which there are `n_new`. Throws Error{numerics}
// where a logit is NaN.
int32_t next_token(std::span<const float> logits, std::span<const int32_t> text, int64_t n_new,
                   const Sampling& sampling);

}  // namespace octet
