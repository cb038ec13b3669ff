// A template's source as tokens, with the white space that tags take away already gone.
//
// Tags are {{ }}, {% %} and {# #}; trim_blocks and lstrip_blocks are on, a trailing line feed is
// dropped, CR LF and CR read as LF: the settings of chat templates.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octet::jinja {

enum class TokenKind {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  op,
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text;  // data, name, op; a string's characters, escapes decoded
  int64_t integer = 0;
  double real = 0;

  bool is(TokenKind of) const { return kind == of; }
  bool is_op(std::string_view op) const { return kind == TokenKind::op && text == op; }
  bool is_name(std::string_view name) const { return kind == TokenKind::name && text == name; }
};

// The last token is `end`. Throws Error{bad_data}, "[template] line N: ...".
std::vector<Token> tokenize(std::string_view source);

[[noreturn]] void fail_at(int line, const std::string& what);

}  // namespace octet::jinja
