// The regular expressions that known tokenizers cut text into words with, as scanners: a tenth of
// the time that a general engine takes. Each is one list of alternatives; the first that matches
// counts. Sources: GPT-2's encoder, tiktoken's cl100k_base, Qwen's tokenizer.
//
//   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   cl100k  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//            ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+             Llama 3's as well
//   qwen    cl100k with \p{N} for \p{N}{1,3}
//
// They match at every position, so that words are adjacent and cover the text. A byte that is no
// UTF-8 is a character that is neither letter, number nor space.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "text/unicode.h"

namespace octet {

enum class WordPattern { gpt2, cl100k, qwen };

// By name, or by the expression's exact text in one of its usual spellings.
std::optional<WordPattern> known_pattern(std::string_view text);

class WordScanner {
 public:
  explicit WordScanner(WordPattern pattern);
  // The end of the word that begins at `at`; at < text.size().
  size_t end_of_word(std::string_view text, size_t at) const;

 private:
  struct Next {
    CharClass type;
    size_t end;
  };
  Next next(std::string_view text, size_t at) const;
  size_t end_of_run(std::string_view text, size_t at, CharClass type) const;
  size_t end_of_space(std::string_view text, size_t at) const;
  size_t end_gpt2(std::string_view text, size_t at) const;
  size_t end_cl100k(std::string_view text, size_t at) const;

  WordPattern pattern_;
  size_t most_digits_;
  CharClasses classes_;
};

}  // namespace octet
