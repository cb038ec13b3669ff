// What the answers of a model with a recipe depend on beside weights and request, so that stored
// ones are taken for the same evaluation alone.
#pragma once

#include <cstdint>
#include <string>

#include "infer/model_source.h"

namespace octet {

struct AnswerLimits {
  int64_t batch = 0;       // texts at a time
  int64_t longest = 0;     // tokens of a text, behind which its left is cut
  int64_t n_new = 0;       // tokens of a generated answer, at most
  uint64_t tokenizer = 0;  // its identity
};

// "longest 2048, new 256, tokenizer 0123456789abcdef", where scales are measured over a batch
// ", batch 8", and where the source's options are not the default ", options " and their hash: of
// overrides, scaling, compute, activations, edge scales and of what these were predicted from.
std::string answer_settings(const ModelSource& source, const AnswerLimits& limits);

}  // namespace octet
