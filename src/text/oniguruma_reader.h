// Reads an expression of Oniguruma (text/oniguruma.h) from left to right.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace octet {

template <typename... Args>
[[noreturn]] void regex_not_supported(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::invalid_argument, "{} is not supported",
              fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] inline void regex_damaged(std::string_view what) {
  throw Error(ErrorCode::invalid_argument, "{}", what);
}

class PatternReader {
 public:
  explicit PatternReader(std::string_view text) : text_(text) {}

  bool is_end() const { return at_ == text_.size(); }
  std::string_view rest() const { return text_.substr(at_); }
  bool is_next(std::string_view what) const { return rest().starts_with(what); }
  // Whether fn holds for the next byte.
  template <typename Fn>
  bool is_next_of(Fn fn) const {
    return !is_end() && fn(text_[at_]);
  }

  size_t position() const { return at_; }
  void go_to(size_t position) { at_ = position; }
  std::string_view since(size_t position) const { return text_.substr(position, at_ - position); }

  bool take(std::string_view what) {
    if (!is_next(what)) return false;
    at_ += what.size();
    return true;
  }
  char take_char(std::string_view missing) {
    if (is_end()) regex_damaged(missing);
    return text_[at_++];
  }
  int32_t take_character() {
    if (is_end()) regex_damaged("a backslash at the end");
    const Character character = decode_utf8(text_, at_);
    if (character.code < 0) regex_damaged("bytes that are no UTF-8");
    at_ += character.length;
    return character.code;
  }
  // What stands before `end`, which is taken as well.
  std::string_view take_until(char end, std::string_view missing) {
    const size_t found = text_.find(end, at_);
    if (found == text_.npos) regex_damaged(missing);
    const std::string_view inner = text_.substr(at_, found - at_);
    at_ = found + 1;
    return inner;
  }
  // At most so many bytes for which fn holds.
  template <typename Fn>
  std::string_view take_while(size_t max_length, Fn fn) {
    const size_t begin = at_;
    while (at_ - begin < max_length && is_next_of(fn)) ++at_;
    return since(begin);
  }

  // Groups and classes within each other: PCRE2 takes 250.
  void enter() {
    if (++depth_ > 200) regex_damaged("more than 200 groups and classes within each other");
  }
  void leave() { --depth_; }

 private:
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

inline bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}
inline bool is_ascii_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace octet
