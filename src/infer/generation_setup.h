// A model that is to generate: where it lies, its tokenizer, its recipe and what ends its texts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "infer/generate.h"
#include "infer/model_source.h"
#include "text/tokenizer.h"

namespace octet {

struct GenerationRequest {
  std::string model;           // as find_model_source takes it
  std::string adapter = {};    // PEFT's folder beside a model's; empty: none
  std::string tokenizer = {};  // "bytes" or a path; empty: the model's own
  std::string recipe = {};     // empty: the run's if it has no 8-bit operands, else bf16
  FrozenFormat weights = FrozenFormat::as_computed;
  UnknownKeys unknown_keys = UnknownKeys::are_warnings;
  NonfiniteWeights nonfinite = NonfiniteWeights::refused;
  int64_t context = 0;         // most tokens of a text; 0: the model's
  bool about_sources = false;  // of a model that translates, and no other
};

struct GenerationSetup {
  ModelSource source;  // with the tokenizer and recipe to generate with
  std::unique_ptr<Tokenizer> tokenizer;
  GenerateOptions options;  // with the model's stop tokens
  int64_t context = 0;      // most tokens of a text
};

// Finds the model and reads its tokenizer and configuration; no weights yet. Throws
// Error{invalid_argument} where it has no tokenizer, for a longer context than the model's, and for
// a model that writes no text, or none about sources where these are asked for.
GenerationSetup setup_generation(Files& files, const GenerationRequest& request, const Log& log);

// Tokens of a prompt, as the tokenizer's file begins texts. Throws Error{invalid_argument} where
// there are none.
std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& text);

// A text may be longer than the context, unless its positions are fixed at that length: then
// throws Error{invalid_argument}.
void check_lengths(const GenerationSetup& setup, const std::vector<Prompt>& prompts,
                   int64_t max_tokens);

}  // namespace octet
