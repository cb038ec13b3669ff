// Text from a model: many prompts, as many at a time as the model has entries.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "infer/sampling.h"
#include "infer/text_model.h"
#include "text/tokenizer.h"

namespace octet {

struct Prompt {
  std::vector<int32_t> tokens;  // at least one
  Sampling sampling = {};
  int64_t n_held = 0;  // of them, that every entry of the model holds already
};

enum class Stop : uint8_t { none, length, token, text };  // none: it goes on
constexpr std::string_view enum_name(Stop stop) {
  constexpr std::string_view names[] = {"none", "length", "token", "text"};
  return names[static_cast<int>(stop)];
}

struct Completion {
  std::vector<int32_t> tokens;  // the new ones, a stop token not among them
  std::string text;             // what they add to the prompt's text, up to the stop text
  Stop stop = Stop::none;
};

struct GenerateOptions {
  int64_t max_tokens = 100;                  // new ones
  std::vector<int32_t> stop_tokens = {};     // any of these ends the text
  std::vector<std::string> stop_texts = {};  // as does any of these in what the new tokens say
  // Gets the text of prompt `index` as it comes, in whole characters, never a part of a stop text.
  std::function<void(size_t index, std::string_view text)> on_text = {};
};

// One completion a prompt, in their order. Beyond the model's capacity the oldest tokens are
// forgotten, and each token costs a pass over the whole text. Throws Error{invalid_argument} for an
// empty prompt or a token outside the vocabulary, and as next_token().
std::vector<Completion> generate(TextModel& model, const Tokenizer& tokenizer,
                                 const std::vector<Prompt>& prompts,
                                 const GenerateOptions& options);

}  // namespace octet
