// A regular expression over UTF-8, compiled to machine code. Engine: PCRE2 with Unicode classes.
// Tokenizer files are written for Oniguruma: text/oniguruma.h says how those are translated. What
// is left of a difference are characters newer than PCRE2's tables.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/input_limits.h"

namespace octet {

struct RegexMatch {
  size_t begin = std::string_view::npos, end = 0;
  bool found() const { return begin != std::string_view::npos; }
};

// Processor seconds that matching one text may take.
struct MatchBudget {
  double seconds = 0;
};
MatchBudget match_budget(size_t n_bytes, const RegexLimits& limits = input_limits().regex);

enum class RegexSyntax { pcre2, oniguruma };

// Immutable; may be used from several threads.
class Regex {
 public:
  // Throws Error{invalid_argument}, "expected a regular expression, got ..."; for one with too many
  // groups as well.
  explicit Regex(std::string_view pattern, const RegexLimits& limits = input_limits().regex,
                 RegexSyntax syntax = RegexSyntax::pcre2);
  ~Regex();

  // Calls `visit` for each match in order; a next one begins behind the last, and is not both empty
  // and at the last one's end. Bytes that are no UTF-8 match nothing. Throws
  // Error{invalid_argument} where one search takes more steps than any sensible one, or all take
  // more than the budget, of which they take their time.
  void for_each(std::string_view text, MatchBudget& budget,
                const std::function<void(const RegexMatch&)>& visit) const;

 private:
  struct Compiled;
  class Search;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace octet
