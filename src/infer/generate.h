// Generation by running the whole prefix for every token, padded on the right to a power of two:
// with causal attention what lies behind a position does not matter to it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "infer/inference.h"

namespace octet {

struct GenerateOptions {
  int64_t max_tokens = 100;  // new ones
  int64_t context = 1024;    // longest prefix that the model is run on
  double temperature = 0;    // 0: the most probable token, the lowest id of equals
  uint32_t seed = 1;
  std::vector<int32_t> stop = {};  // any of these ends the text, and is not part of it
};

// The functions that generate() needs for a prompt of this length.
std::vector<FunctionKey> generation_functions(int64_t prompt_tokens,
                                              const GenerateOptions& options);

// The new tokens; on_token gets each as it comes. Beyond `context` the oldest tokens are forgotten.
// Random choices are Philox words keyed by the seed and counted by the token. The prompt must have
// at least one token, all within the vocabulary; throws Error{invalid_argument} else, and
// Error{numerics} where a logit is NaN.
std::vector<int32_t> generate(Inference& model, std::span<const int32_t> prompt,
                              const GenerateOptions& options,
                              const std::function<void(int32_t)>& on_token = {});

}  // namespace octet
