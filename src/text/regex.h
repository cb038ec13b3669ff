// A regular expression over UTF-8, compiled to machine code. Engine: PCRE2 with Unicode classes.
// Tokenizer files are written for Oniguruma; what they use means the same in both, but for \s,
// which is made to mean the property White_Space, and characters that are newer than PCRE2's
// tables.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace octet {

struct Match {
  size_t begin = std::string_view::npos, end = 0;
  bool found() const { return begin != std::string_view::npos; }
};

// Immutable; may be used from several threads.
class Regex {
 public:
  // Throws Error{invalid_argument}, "expected a regular expression, got ...".
  explicit Regex(const std::string& pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // The first match from `at` on. Bytes that are no UTF-8 match nothing. Throws
  // Error{invalid_argument} where the expression takes more steps than any sensible one.
  Match find(std::string_view text, size_t at) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace octet
