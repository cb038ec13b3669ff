#include "text/jinja/characters.h"

#include <utf8proc.h>

#include <algorithm>

namespace octet::jinja {

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

size_t nth_character(std::string_view text, int64_t n) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((text[at] & 0xC0) != 0x80 && n-- == 0) break;
  }
  return at;
}

bool is_space(int32_t code) {
  return (code >= 0x1C && code <= 0x1F) || is_white_space(code);
}

bool is_line_end(int32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

bool is_digit(int32_t code) {
  return utf8proc_category(code) == UTF8PROC_CATEGORY_ND || code == 0xB2 || code == 0xB3 ||
         code == 0xB9 || code == 0x2070 || (code >= 0x2074 && code <= 0x2079) ||
         (code >= 0x2080 && code <= 0x2089) || (code >= 0x2460 && code <= 0x2468);
}

bool is_printable(int32_t code) {
  const auto kind = utf8proc_category(code);
  return code == ' ' || (kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS);
}

bool is_cased(int32_t code) {
  const auto kind = utf8proc_category(code);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT || code == 0xAA || code == 0xBA;
}

std::string_view strip(std::string_view text, Side side) {
  return strip_while(text, side, [](std::string_view, int32_t code) { return is_space(code); });
}

std::string_view strip(std::string_view text, Side side, std::string_view set) {
  // A whole character is found only where a character begins: UTF-8 synchronizes itself.
  return strip_while(text, side, [set](std::string_view character, int32_t) {
    return set.find(character) != std::string_view::npos;
  });
}

bool has_simple_case(int32_t code, Case to) {
  constexpr int32_t kDottedI = 0x130, kSigma = 0x3A3, kMaxCharacters = 4;
  if (code < 0x80) return true;
  if (to == Case::lower) return code != kDottedI && code != kSigma;
  // A character that folds to several characters is several characters in upper case.
  utf8proc_int32_t folded[kMaxCharacters];
  int boundary = 0;
  return utf8proc_decompose_char(code, folded, kMaxCharacters, UTF8PROC_CASEFOLD, &boundary) <= 1;
}

int32_t change_case(int32_t code, Case to) {
  if (code < 0x80) {
    const bool is_lower = code >= 'a' && code <= 'z', is_upper = code >= 'A' && code <= 'Z';
    const bool changes = to == Case::lower ? is_upper : is_lower;
    return changes ? code ^ 0x20 : code;
  }
  return to == Case::upper   ? utf8proc_toupper(code)
         : to == Case::lower ? utf8proc_tolower(code)
                             : utf8proc_totitle(code);
}

}  // namespace octet::jinja
