#include "text/jinja/lexer.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "text/jinja/characters.h"
#include "text/jinja/string_literal.h"
#include "text/unicode.h"

namespace octet::jinja {
namespace {

std::string normalize_newlines(std::string_view source) {
  std::string text;
  for (size_t at = 0; at < source.size(); ++at) {
    if (source[at] != '\r') {
      text += source[at];
      continue;
    }
    text += '\n';
    if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string text) : text_(std::move(text)) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) root();
    add(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  void add(TokenKind kind, std::string text = {}) {
    tokens_.push_back({kind, line_, std::move(text), 0, 0});
  }

  std::string_view rest() const { return std::string_view(text_).substr(at_); }
  bool looking_at(std::string_view what) const { return rest().starts_with(what); }

  // Moves on; what was passed ends a line or does not.
  void advance_to(size_t at) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<ptrdiff_t>(at_),
                                         text_.begin() + static_cast<ptrdiff_t>(at), '\n'));
    if (at > at_) is_line_start_ = text_[at - 1] == '\n';
    at_ = at;
  }
  void skip(size_t n) { advance_to(at_ + n); }
  void skip_space() { advance_to(text_.size() - strip(rest(), Side::left).size()); }

  // Text up to the next tag, and the tag's beginning.
  void root() {
    size_t tag = at_;
    while (true) {
      tag = text_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= text_.size()) {
        add(TokenKind::data, text_.substr(at_));
        return advance_to(text_.size());
      }
      const char kind = text_[tag + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
      ++tag;
    }
    const char kind = text_[tag + 1];
    size_t after = tag + 2;
    char sign = after < text_.size() ? text_[after] : '\0';
    if (sign == '-' || sign == '+') {
      ++after;
    } else {
      sign = '\0';
    }
    add_data(std::string_view(text_).substr(at_, tag - at_), sign, kind == '{');
    advance_to(after);
    if (kind == '#') return comment();
    if (kind == '{') return expression(TokenKind::variable_begin);
    if (!raw()) expression(TokenKind::block_begin);
  }

  void add_data(std::string_view data, char sign, bool is_variable) {
    if (sign == '-') {
      data = strip(data, Side::right);
    } else if (sign != '+' && !is_variable) {
      const size_t line = data.rfind('\n') + 1;  // npos + 1 == 0
      const bool begins_line = line > 0 || is_line_start_;
      if (begins_line && strip(data.substr(line), Side::both).empty()) data = data.substr(0, line);
    }
    if (!data.empty()) add(TokenKind::data, std::string(data));
  }

  // What follows a comment, a block or {% endraw %}, whose own characters are passed.
  void after_tag(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && looking_at("\n")) {
      skip(1);
    }
  }

  void comment() {
    const size_t close = text_.find("#}", at_);
    if (close == std::string::npos) fail_at(line_, "a comment has no end");
    const char sign = close > at_ ? text_[close - 1] : '\0';
    advance_to(close + 2);
    after_tag(sign == '-' || sign == '+' ? sign : '\0');
  }

  // {% raw %}: true where that is what follows.
  bool raw() {
    const size_t begin = at_;
    const auto spaces = [&](size_t at) {
      const std::string_view from = std::string_view(text_).substr(at);
      return at + from.size() - strip(from, Side::left).size();
    };
    size_t at = spaces(begin);
    if (text_.compare(at, 3, "raw") != 0) return false;
    at = spaces(at + 3);
    const bool strips = at < text_.size() && text_[at] == '-';
    if (text_.compare(at + (strips ? 1 : 0), 2, "%}") != 0) return false;
    advance_to(at + (strips ? 3 : 2));
    if (strips) skip_space();
    for (size_t tag = text_.find("{%", at_); tag != std::string::npos;
         tag = text_.find("{%", tag + 1)) {
      size_t name = tag + 2;
      const char sign = name < text_.size() ? text_[name] : '\0';
      const bool has_sign = sign == '-' || sign == '+';
      name = spaces(name + (has_sign ? 1 : 0));
      if (text_.compare(name, 6, "endraw") != 0) continue;
      size_t close = spaces(name + 6);
      const char end_sign = close < text_.size() ? text_[close] : '\0';
      const bool has_end_sign = end_sign == '-' || end_sign == '+';
      close += has_end_sign ? 1 : 0;
      if (text_.compare(close, 2, "%}") != 0) continue;
      add_data(std::string_view(text_).substr(at_, tag - at_), has_sign ? sign : '\0', false);
      advance_to(close + 2);
      after_tag(has_end_sign ? end_sign : '\0');
      return true;
    }
    fail_at(line_, "{% raw %} has no end");
  }

  // The inside of {{ }} or {% %}.
  void expression(TokenKind begin) {
    const bool is_block = begin == TokenKind::block_begin;
    const std::string_view close = is_block ? "%}" : "}}";
    const int begin_line = line_;
    std::string open;  // brackets
    add(begin);
    while (at_ < text_.size()) {
      if (open.empty() && ends_tag(close, is_block)) {
        return;
      }
      if (is_space(decode_utf8(text_, at_).code)) {
        skip_space();
        continue;
      }
      if (number() || name() || string()) continue;
      op(open);
    }
    fail_at(begin_line, is_block ? "a {% tag has no end" : "a {{ tag has no end");
  }

  bool ends_tag(std::string_view close, bool is_block) {
    char sign = '\0';
    if (looking_at("-") || (is_block && looking_at("+"))) sign = text_[at_];
    if (!rest().substr(sign == '\0' ? 0 : 1).starts_with(close)) return false;
    add(is_block ? TokenKind::block_end : TokenKind::variable_end);
    skip(close.size() + (sign == '\0' ? 0 : 1));
    if (is_block || sign == '-') after_tag(sign);
    return true;
  }

  // Digits with single underscores between them.
  size_t digits_end(size_t at, bool (*is_of)(char)) const {
    while (at < text_.size()) {
      if (is_of(text_[at])) {
        ++at;
      } else if (text_[at] == '_' && at + 1 < text_.size() && is_of(text_[at + 1]) && at > at_) {
        at += 2;
      } else {
        break;
      }
    }
    return at;
  }

  bool number() {
    if (!is_digit(text_[at_])) return false;
    const bool follows_dot = at_ > 0 && text_[at_ - 1] == '.';
    size_t end = digits_end(at_, is_digit);
    bool is_real = false;
    if (!follows_dot) {
      if (end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1])) {
        end = digits_end(end + 1, is_digit);
        is_real = true;
      }
      size_t power = end;
      if (power < text_.size() && (text_[power] == 'e' || text_[power] == 'E')) {
        ++power;
        if (power < text_.size() && (text_[power] == '+' || text_[power] == '-')) ++power;
        if (power < text_.size() && is_digit(text_[power])) {
          end = digits_end(power, is_digit);
          is_real = true;
        }
      }
    }
    return is_real ? real(end) : integer();
  }

  std::string without_underscores(size_t begin, size_t end) const {
    std::string digits = text_.substr(begin, end - begin);
    std::erase(digits, '_');
    return digits;
  }

  bool real(size_t end) {
    const std::string digits = without_underscores(at_, end);
    Token token{TokenKind::real, line_, {}, 0, 0};
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), token.real);
    if (result.ec != std::errc()) fail_at(line_, "a number is out of range");
    tokens_.push_back(token);
    advance_to(end);
    return true;
  }

  bool integer() {
    int base = 10;
    size_t begin = at_, end = digits_end(at_, is_digit);
    const char kind = at_ + 1 < text_.size() ? static_cast<char>(text_[at_ + 1] | 0x20) : '\0';
    if (text_[at_] == '0') {
      const auto is_of = [](int of) {
        return of == 16  ? +[](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }
               : of == 8 ? +[](char c) { return c >= '0' && c <= '7'; }
                         : +[](char c) { return c == '0' || c == '1'; };
      };
      const int of = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
      const size_t stop = of == 0 ? 0 : digits_end(at_ + 2, is_of(of));
      if (of != 0 && stop > at_ + 2) {
        base = of;
        begin = at_ + 2;
        end = stop;
      } else {
        end = digits_end(at_, [](char c) { return c == '0'; });  // 012 reads as 0 and 12
      }
    }
    const std::string digits = without_underscores(begin, end);
    Token token{TokenKind::integer, line_, {}, 0, 0};
    const auto result =
        std::from_chars(digits.data(), digits.data() + digits.size(), token.integer, base);
    if (result.ec != std::errc()) fail_at(line_, "an integer beyond 64 bits");
    tokens_.push_back(token);
    advance_to(end);
    return true;
  }

  bool name() {
    size_t end = at_;
    while (end < text_.size()) {
      const Character character = decode_utf8(text_, end);
      const bool fits =
          end == at_ ? is_identifier_start(character.code) : is_identifier_part(character.code);
      if (!fits) break;
      end += character.length;
    }
    if (end == at_) return false;
    add(TokenKind::name, text_.substr(at_, end - at_));
    advance_to(end);
    return true;
  }

  bool string() {
    const char quote = text_[at_];
    if (quote != '\'' && quote != '"') return false;
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail_at(line_, "a string has no end");
    const std::string_view inside = std::string_view(text_).substr(at_ + 1, end - at_ - 1);
    add(TokenKind::string, decode_string_literal(inside, line_));
    advance_to(end + 1);
    return true;
  }

  void op(std::string& open) {
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](std::string_view one) { return looking_at(one); });
    if (found == std::end(kOperators)) {
      const size_t length = decode_utf8(text_, at_).length;
      fail_at(line_, "unexpected character '" + text_.substr(at_, length) + "'");
    }
    const char c = (*found)[0];
    if (c == '{' || c == '(' || c == '[') open += c == '{' ? '}' : c == '(' ? ')' : ']';
    if (c == '}' || c == ')' || c == ']') {
      if (open.empty() || open.back() != c) {
        fail_at(line_, "unexpected '" + std::string(1, c) + "'");
      }
      open.pop_back();
    }
    add(TokenKind::op, std::string(*found));
    skip(found->size());
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
