// Cuts normalized text into words, which are encoded each by itself: the pre-tokenizers of
// tokenizer.json.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/named_enum.h"
#include "text/regex.h"

namespace octet {

// Handling of the matches of a Split.
enum class SplitBehavior {
  removed,
  isolated,
  contiguous,  // neighbours of one kind are one word
  merged_with_previous,
  merged_with_next,
};
constexpr auto value_names(SplitBehavior) {
  return name_list("Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext");
}

struct PrefixSpace {};  // a space before text that does not begin with one
struct SplitMatches {
  std::shared_ptr<const Regex> regex;  // else `literal`
  std::string literal;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // what does not match is the match
};
struct SplitCharacters {          // the matches are single characters
  bool (*matches)(int32_t code);  // kInvalid is one as well
  SplitBehavior behavior = SplitBehavior::isolated;
};
struct SplitLengths {
  int64_t length = 1;  // characters of a word but the last
};
enum class PrependScheme { always, first, never };
constexpr auto value_names(PrependScheme) {
  return name_list("always", "first", "never");
}
struct MarkSpaces {  // Metaspace
  std::string mark;
  PrependScheme prepend = PrependScheme::always;
  bool split = true;
};
using PreTokenizerStep =
    std::variant<PrefixSpace, SplitMatches, SplitCharacters, SplitLengths, MarkSpaces>;

class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(const TokenizerLimits& limits) : limits_(limits) {}
  using Visit = std::function<void(std::string_view word)>;

  // Throws Error{invalid_argument} for more steps than these.
  void add(PreTokenizerStep step);
  bool empty() const { return steps_.empty(); }
  // True if a step puts its mark before the document's first word alone.
  bool marks_first() const {
    return std::ranges::any_of(steps_, [](const PreTokenizerStep& step) {
      const auto* marks = std::get_if<MarkSpaces>(&step);
      return marks != nullptr && marks->prepend == PrependScheme::first;
    });
  }
  // `is_first`: the text begins the document. Words are not empty.
  void split(std::string_view text, bool is_first, MatchBudget& budget, const Visit& visit) const {
    split_from(0, {text, is_first}, budget, visit);
  }

 private:
  struct Part {
    std::string_view text;
    bool is_first;
  };
  void split_from(size_t step, const Part& part, MatchBudget& budget, const Visit& visit) const;

  TokenizerLimits limits_ = input_limits().tokenizer;
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace octet
