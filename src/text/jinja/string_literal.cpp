#include "text/jinja/string_literal.h"

#include <fmt/format.h>

#include "text/jinja/lexer.h"
#include "text/unicode.h"

namespace octet::jinja {
namespace {

class Decoder {
 public:
  Decoder(std::string_view inside, int line) : inside_(inside), line_(line) {}

  std::string run() {
    while (at_ < inside_.size()) {
      if (inside_[at_] == '\\' && at_ + 1 < inside_.size()) {
        ++at_;
        escape();
      } else {
        out_ += inside_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  // at_ stands on what follows the backslash.
  void escape() {
    static constexpr std::string_view kPlain = "\\'\"abfnrtv", kAs = "\\'\"\a\b\f\n\r\t\v";
    const char c = inside_[at_];
    const size_t plain = kPlain.find(c);
    if (plain != std::string_view::npos) {
      out_ += kAs[plain];
      ++at_;
    } else if (c == '\n') {
      ++at_;  // a line that goes on
    } else if (c >= '0' && c <= '7') {
      octal();
    } else if (c == 'x' || c == 'u' || c == 'U') {
      ++at_;
      hexadecimal(c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c == 'N') {
      fail_at(line_, "\\N{...} in a string is outside the supported subset");
    } else if ((c & 0x80) != 0) {
      spelled_out();
    } else {
      out_ += '\\';
      out_ += c;
      ++at_;
    }
  }

  void octal() {
    int32_t code = 0;
    for (int i = 0; i < 3 && at_ < inside_.size(); ++i) {
      if (inside_[at_] < '0' || inside_[at_] > '7') break;
      code = code * 8 + (inside_[at_++] - '0');
    }
    append_utf8(out_, code);
  }

  void hexadecimal(size_t n_digits) {
    if (at_ + n_digits > inside_.size()) fail_at(line_, "an escape in a string is too short");
    uint32_t code = 0;
    for (size_t i = 0; i < n_digits; ++i) {
      const char c = inside_[at_++];
      const char lower = static_cast<char>(c | 0x20);
      const bool is_letter = lower >= 'a' && lower <= 'f';
      if (!is_letter && (c < '0' || c > '9')) fail_at(line_, "a mistaken escape in a string");
      code = code * 16 + static_cast<uint32_t>(is_letter ? lower - 'a' + 10 : c - '0');
    }
    const bool is_surrogate = code >= 0xD800 && code < 0xE000;
    if (code > 0x10FFFF || is_surrogate) {
      fail_at(line_, "an escape in a string names no character");
    }
    append_utf8(out_, static_cast<int32_t>(code));
  }

  // Jinja spells other characters as escapes before it decodes them; a backslash before one makes
  // the spelling stay.
  void spelled_out() {
    const Character character = decode_utf8(inside_, at_);
    const int32_t code = character.code;
    out_ += '\\';
    out_ += code < 0x100     ? fmt::format("x{:02x}", code)
            : code < 0x10000 ? fmt::format("u{:04x}", code)
                             : fmt::format("U{:08x}", code);
    at_ += character.length;
  }

  std::string_view inside_;
  const int line_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string decode_string_literal(std::string_view inside, int line) {
  return Decoder(inside, line).run();
}

}  // namespace octet::jinja
