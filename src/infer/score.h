// Log-likelihoods of continuations behind their contexts.
//
// As EleutherAI's lm-evaluation-harness: the context's trailing spaces move to the continuation;
// the text as a whole becomes tokens, as the tokenizer's own default begins texts, and is cut where
// the context's tokens end; where a token spans all of the continuation and the context's end, the
// continuation becomes tokens by itself; what is longer than the model's context loses tokens on
// the left. A context is read once for all of its continuations, and what contexts begin with alike
// once for all.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "infer/text_model.h"
#include "text/tokenizer.h"

namespace octet {

struct ScoreRequest {
  std::string context, continuation;
};

struct ScoredTokens {
  std::vector<int32_t> context, continuation;  // the context has at least one
};
// `longest`: tokens of context and continuation that a model reads; the last one is not read.
// Throws Error{invalid_argument} for an empty context where the tokenizer has no token to begin
// with, and for an empty continuation; Error{bad_data} where one of them has no tokens.
ScoredTokens scored_tokens(const Tokenizer& tokenizer, const ScoreRequest& request,
                           int64_t longest);

struct LogLikelihood {
  double sum = 0;          // of the continuation's tokens, nats
  bool is_greedy = false;  // whether each is the most probable one
  int64_t n_tokens = 0;
};

// An error in a batch of requests, of which `index` is the first.
struct ScoreError : Error {
  ScoreError(size_t first, const Error& error) : Error(error), index(first) {}
  size_t index;
};

// For each request; on_done gets them as they come, in any order. Throws ScoreError, of code
// numerics where a logit is NaN.
using OnScored = std::function<void(size_t index, const LogLikelihood& result)>;
void score(TextModel& model, std::span<const ScoredTokens> requests, const OnScored& on_done);

// How many tokens all texts begin with.
size_t common_prefix(std::span<const std::vector<int32_t>* const> texts);

}  // namespace octet
