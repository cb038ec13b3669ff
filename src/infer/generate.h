// Text from a model: many prompts, as many at a time as the model has entries.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "infer/sampling.h"
#include "infer/text_model.h"
#include "text/tokenizer.h"

namespace octet {

// The text of new tokens as they come: in whole characters, and up to a stop text.
class WrittenText {
 public:
  // The text of `prompt` is known already: it is context for the first new token alone.
  WrittenText(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
              std::span<const std::string> stop_texts);

  // true: a stop text is there, and text() ends before it. A token that the tokenizer lacks, where
  // the model has more embeddings, is no text.
  bool add(int32_t token);
  // No token follows: what was held back is text now.
  void finish() { n_shown_ = text_.size(); }

  const std::string& text() const { return text_; }
  // How much of text() is certain to stay: not the bytes of a character that is not whole yet, nor
  // what may become a stop text.
  size_t n_certain() const { return n_shown_; }

 private:
  std::string decoded() const;

  const Tokenizer& tokenizer_;
  std::vector<std::string> stop_texts_;
  std::vector<int32_t> tokens_;  // the last ones of the prompt, and the new
  std::string before_;           // what those of the prompt say
  std::string text_;
  size_t n_shown_ = 0;
};

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
