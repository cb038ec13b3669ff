// What a tokenizer does to text before it looks for words: the normalizers of tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

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
using NormalizerStep = std::variant<PrependText, ReplaceText, ReplaceMatches, StripSpace,
                                    std::shared_ptr<const UnicodeNormalizer>>;

class Normalizer {
 public:
  void add(NormalizerStep step) { steps_.push_back(std::move(step)); }
  bool changes_nothing() const { return steps_.empty(); }
  // Throws Error{bad_data} for bytes that are no UTF-8 where a normal form must read them.
  std::string apply(std::string_view text) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace octet
