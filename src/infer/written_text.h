// The text of new tokens as they come: in whole characters, and up to a stop text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace octet {

class WrittenText {
 public:
  // What `prompt` says is known already: it is context for the first new token alone.
  WrittenText(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
              std::span<const std::string> stop_texts);

  // true: a stop text is there, and text() ends before it.
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

}  // namespace octet
