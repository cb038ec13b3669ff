// Normalizers of tokenizer.json: what a tokenizer does to text before it looks for words.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/input_limits.h"
#include "text/character_map.h"
#include "text/character_rule.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace octet {

struct PrependText {
  std::string text;  // before text that is not empty
};
struct ReplaceText {
  std::string from, to;
};
struct ReplaceMatches {
  std::shared_ptr<const Regex> from;
  std::string to;
};
struct StripSpace {
  bool left = false, right = false;
};
struct MapCharacters {
  const CharacterRule* rule;
};
struct SpellBytes {};  // each byte as the character that stands for it (text/byte_alphabet.h)
using NormalizerStep =
    std::variant<PrependText, ReplaceText, ReplaceMatches, StripSpace, MapCharacters, SpellBytes,
                 std::shared_ptr<const CharacterMap>, std::shared_ptr<const UnicodeNormalizer>>;

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(const TokenizerLimits& limits) : limits_(limits) {}

  // Throws Error{invalid_argument} for one step too many.
  void add(NormalizerStep step);
  bool changes_nothing() const { return steps_.empty(); }
  // Throws Error{bad_data} for bytes that are no UTF-8 where a normal form or a
  // rule of characters must read them, and
  // Error{invalid_argument} where a text grows beyond the limits.
  std::string apply(std::string_view text, MatchBudget& budget) const;
  // is_first: of a text that begins its document; false behind the call where what is made begins
  // with what came from another character than its first. The tokenizers package goes by that.
  std::string apply(std::string_view text, MatchBudget& budget, bool& is_first) const;
  std::string apply(std::string_view text) const;

 private:
  TokenizerLimits limits_ = input_limits().tokenizer;
  std::vector<NormalizerStep> steps_;
};

// Throws Error{bad_data} that names the first byte where it is not UTF-8.
void check_utf8(std::string_view text);

}  // namespace octet
