#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/parse_text.h"
#include "text/jinja/characters.h"

namespace octet::jinja {
namespace {

std::string normalize_newlines(std::string_view source) {
  std::string text;
  for (size_t at = 0; at < source.size(); ++at) {
    const bool is_return = source[at] == '\r';
    text += is_return ? '\n' : source[at];
    if (is_return && at + 1 < source.size() && source[at + 1] == '\n') ++at;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

class Lexer {
 public:
  explicit Lexer(std::string text) : text_(std::move(text)) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) root();
    add(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  Token& add(TokenKind kind, std::string text = {}) {
    tokens_.push_back({kind, line_, std::move(text), 0, 0});
    return tokens_.back();
  }

  std::string_view from(size_t at) const {
    return std::string_view(text_).substr(std::min(at, text_.size()));
  }
  char at(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  size_t after_space(size_t at) const { return text_.size() - strip(from(at), Side::left).size(); }
  // The sign of a tag that stands at `at`, which it moves past it.
  char sign(size_t& at) const {
    const char c = this->at(at);
    if (c != '-' && c != '+') return '\0';
    ++at;
    return c;
  }

  // Moves on; what was passed ends a line or does not.
  void advance_to(size_t at) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<ptrdiff_t>(at_),
                                         text_.begin() + static_cast<ptrdiff_t>(at), '\n'));
    if (at > at_) is_line_start_ = text_[at - 1] == '\n';
    at_ = at;
  }

  // Text up to the next tag, and the tag.
  void root() {
    char kind = '\0';
    size_t tag = text_.find('{', at_);
    for (; tag != std::string::npos; tag = text_.find('{', tag + 1)) {
      kind = at(tag + 1);
      if (kind == '{' || kind == '%' || kind == '#') break;
    }
    if (tag == std::string::npos) {
      add(TokenKind::data, text_.substr(at_));
      return advance_to(text_.size());
    }
    size_t after = tag + 2;
    const char strips = sign(after);
    add_data(tag, strips, kind == '{');
    advance_to(after);
    if (kind == '#') return comment();
    expression(kind == '{' ? TokenKind::variable_begin : TokenKind::block_begin);
  }

  // The text up to `end`, less what the tag there takes away.
  void add_data(size_t end, char sign, bool is_variable) {
    std::string_view data = from(at_).substr(0, end - at_);
    if (sign == '-') {
      data = strip(data, Side::right);
    } else if (sign != '+' && !is_variable) {
      const size_t line = data.rfind('\n') + 1;  // npos + 1 == 0
      const bool begins_line = line > 0 || is_line_start_;
      if (begins_line && strip(data.substr(line), Side::both).empty()) data = data.substr(0, line);
    }
    if (!data.empty()) add(TokenKind::data, std::string(data));
  }

  // Text behind a comment or a block, whose own characters are passed.
  void after_tag(char sign) {
    if (sign == '-') {
      advance_to(after_space(at_));
    } else if (sign != '+' && at(at_) == '\n') {
      advance_to(at_ + 1);
    }
  }

  void comment() {
    const size_t close = text_.find("#}", at_);
    if (close == std::string::npos) fail_at(line_, "a comment has no end");
    const char last = close > at_ ? text_[close - 1] : '\0';
    advance_to(close + 2);
    after_tag(last);
  }

  // The inside of {{ }} or {% %}.
  void expression(TokenKind begin) {
    const bool is_block = begin == TokenKind::block_begin;
    const int begin_line = line_;
    std::string open;  // brackets
    add(begin);
    while (at_ < text_.size()) {
      if (open.empty() && ends_tag(is_block)) return;
      const int32_t code = decode_utf8(text_, at_).code;
      if (is_space(code)) {
        advance_to(after_space(at_));
      } else if (code >= '0' && code <= '9') {
        number();
      } else if (code == '\'' || code == '"') {
        string();
      } else if (!name()) {
        op(open);
      }
    }
    fail_at(begin_line, is_block ? "a {% tag has no end" : "a {{ tag has no end");
  }

  bool ends_tag(bool is_block) {
    size_t end = at_;
    const char strips = sign(end);
    if (!from(end).starts_with(is_block ? "%}" : "}}") || (strips == '+' && !is_block)) {
      return false;
    }
    add(is_block ? TokenKind::block_end : TokenKind::variable_end, is_block ? "%}" : "}}");
    advance_to(end + 2);
    if (is_block || strips == '-') after_tag(strips);
    return true;
  }

  size_t digits_end(size_t at) const {
    return std::min(text_.find_first_not_of("0123456789", at), text_.size());
  }

  void number() {
    size_t end = digits_end(at_);
    bool is_real = false;
    const auto extend = [&](size_t digits) {
      const size_t to = digits_end(std::min(digits, text_.size()));
      if (to <= digits) return;
      end = to;
      is_real = true;
    };
    if (at(end) == '.') extend(end + 1);
    if ((at(end) | 0x20) == 'e') {
      size_t power = end + 1;
      sign(power);
      extend(power);
    }
    if (end < text_.size() && is_word_character(decode_utf8(text_, end).code)) {
      fail_at(line_, "numbers that are not decimal are outside the supported subset");
    }
    Token& token = add(is_real ? TokenKind::real : TokenKind::integer);
    const char *first = &text_[at_], *last = first + (end - at_);
    const auto result = is_real ? std::from_chars(first, last, token.real)
                                : std::from_chars(first, last, token.integer);
    if (result.ec != std::errc()) fail_at(line_, "a number is out of range");
    advance_to(end);
  }

  bool name() {
    size_t end = at_;
    while (end < text_.size() && is_word_character(decode_utf8(text_, end).code)) {
      end += decode_utf8(text_, end).length;
    }
    if (end == at_) return false;
    const bool begins_tag = tokens_.back().is(TokenKind::block_begin);
    add(TokenKind::name, text_.substr(at_, end - at_));
    if (begins_tag && tokens_.back().text == "raw") {  // whose content may be anything
      fail_at(line_, "{% raw %} is outside the supported subset");
    }
    advance_to(end);
    return true;
  }

  void string() {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != text_[at_]) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail_at(line_, "a string has no end");
    std::string decoded;
    for (size_t at = at_ + 1; at < end;) {
      if (text_[at] == '\\') {
        escape(decoded, at);
      } else {
        decoded += text_[at++];
      }
    }
    add(TokenKind::string, std::move(decoded));
    advance_to(end + 1);
  }

  // Reads an escape as Python does; moves past it.
  void escape(std::string& out, size_t& at) const {
    static constexpr std::string_view kNamed = "\\'\"abfnrtv", kAs = "\\'\"\a\b\f\n\r\t\v";
    const char c = text_[at + 1];
    const size_t named = kNamed.find(c);
    at += 2;
    if (named != std::string_view::npos) {
      out += kAs[named];
    } else if (c == 'x' || c == 'u') {
      const size_t length = c == 'x' ? 2 : 4;
      const std::string_view digits = from(at).substr(0, length);
      const auto code = parse_number<uint32_t>(digits, 16);
      if (digits.size() < length || !code || (*code >= 0xD800 && *code < 0xE000)) {
        fail_at(line_, "an escape in a string names no character");
      }
      append_utf8(out, static_cast<int32_t>(*code));
      at += length;
    } else if (std::string_view("01234567NU").find(c) != std::string_view::npos || (c & 0x80)) {
      fail_at(line_, "this escape in a string is outside the supported subset");
    } else if (c != '\n') {  // a line that goes on
      out += {'\\', c};
    }
  }

  void op(std::string& open) {
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](auto one) { return from(at_).starts_with(one); });
    if (found == std::end(kOperators)) {
      const size_t length = decode_utf8(text_, at_).length;
      fail_at(line_, "unexpected character '" + text_.substr(at_, length) + "'");
    }
    if (*found == "**") fail_at(line_, "** is outside the supported subset");
    static constexpr std::string_view kOpen = "{([", kClose = "})]";
    const char c = found->front();
    const size_t opens = kOpen.find(c);
    if (opens != std::string_view::npos) open += kClose[opens];
    if (kClose.find(c) != std::string_view::npos) {
      if (open.empty() || open.back() != c) fail_at(line_, fmt::format("unexpected '{}'", c));
      open.pop_back();
    }
    add(TokenKind::op, std::string(*found));
    advance_to(at_ + found->size());
  }

  const std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  bool is_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

void fail_at(int line, const std::string& what) {
  throw Error(ErrorCode::bad_data, "[template] line {}: {}", line, what);
}

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(normalize_newlines(source)).run();
}

}  // namespace octet::jinja
