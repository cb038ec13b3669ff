// A cursor over a graph's text: words, numbers, strings and lists, and errors that say where.
#pragma once

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <string>
#include <string_view>

#include "base/error.h"
#include "ir/types.h"

namespace octet {

class TextCursor {
 protected:
  TextCursor(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  [[noreturn]] void fail(std::string_view expected) { fail_at(pos_, expected); }
  [[noreturn]] void fail_at(size_t pos, std::string_view expected) {
    throw Error(ErrorCode::invalid_argument, "{}: expected {}, got {}", place_of(pos), expected,
                word_at(pos));
  }
  // "graph:3:7".
  std::string place_of(size_t pos) const {
    int line = 1, column = 1;
    for (size_t i = 0; i < pos && i < text_.size(); ++i) {
      column = text_[i] == '\n' ? 1 : column + 1;
      line += text_[i] == '\n' ? 1 : 0;
    }
    return fmt::format("{}:{}:{}", file_, line, column);
  }
  // The word that stands there, as far as a terminal can show it.
  std::string word_at(size_t pos) const {
    if (pos >= text_.size()) return "the end";
    const size_t end = std::min(text_.find_first_of(" \n\t,(){}[]", pos + 1), pos + 20);
    std::string shown = "'";
    for (const char ch : text_.substr(pos, end - pos)) {
      const bool is_printable = ch >= ' ' && ch != 0x7f;
      shown += is_printable ? std::string(1, ch)
                            : fmt::format("\\x{:02x}", static_cast<unsigned char>(ch));
    }
    return shown + "'";
  }

  void skip() {
    while (pos_ < text_.size()) {
      const char ch = text_[pos_];
      if (ch == '#') {
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      } else if (ch == ' ' || ch == '\n' || ch == '\t' || ch == '\r') {
        ++pos_;
      } else {
        return;
      }
    }
  }
  char peek() {
    skip();
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }
  bool accept(char ch) {
    if (peek() != ch) return false;
    ++pos_;
    return true;
  }
  void expect(char ch) {
    if (!accept(ch)) fail(fmt::format("'{}'", ch));
  }
  std::string_view word() {
    skip();
    size_t end = pos_;
    while (end < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 || text_[end] == '_'))
      ++end;
    return text_.substr(pos_, end - pos_);
  }
  void keyword(std::string_view wanted) {
    if (word() != wanted) fail(fmt::format("'{}'", wanted));
    pos_ += wanted.size();
  }
  bool accept_keyword(std::string_view wanted) {
    if (word() != wanted) return false;
    pos_ += wanted.size();
    return true;
  }
  std::string string() {
    expect('"');
    std::string out;
    while (pos_ < text_.size() && text_[pos_] != '"') {
      if (text_[pos_] == '\\' && pos_ + 1 < text_.size()) ++pos_;
      out += text_[pos_++];
    }
    if (pos_ >= text_.size()) fail("'\"'");
    ++pos_;
    return out;
  }
  template <typename T>
  T number() {
    skip();
    T value{};
    const auto [end, error] =
        std::from_chars(text_.data() + pos_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("a number");
    pos_ = static_cast<size_t>(end - text_.data());
    return value;
  }
  template <typename E>
  E enumerator() {
    const std::string_view name = word();
    std::string known;
    for (int i = 0; i < enum_count(E{}); ++i) {
      if (enum_name(static_cast<E>(i)) == name) {
        pos_ += name.size();
        return static_cast<E>(i);
      }
      known += fmt::format("{}{}", i == 0 ? "" : " | ", enum_name(static_cast<E>(i)));
    }
    fail(known);
  }
  Shape shape() { return list<int64_t>(); }
  template <typename T>
  std::vector<T> list() {
    std::vector<T> numbers;
    expect('[');
    if (accept(']')) return numbers;
    do {
      numbers.push_back(number<T>());
    } while (accept(','));
    expect(']');
    return numbers;
  }

  std::string_view text_;
  std::string file_;
  size_t pos_ = 0;
};

}  // namespace octet
