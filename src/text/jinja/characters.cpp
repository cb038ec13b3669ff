#include "text/jinja/characters.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/unicode.h"

namespace octet::jinja {
namespace {

utf8proc_category_t category(int32_t code) {
  return utf8proc_category(code);
}

bool is_letter(int32_t code) {
  const auto kind = category(code);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT || kind == UTF8PROC_CATEGORY_LM ||
         kind == UTF8PROC_CATEGORY_LO;
}

bool is_decimal(int32_t code) {
  return category(code) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(int32_t code) {
  return is_decimal(code) || code == 0xB2 || code == 0xB3 || code == 0xB9 || code == 0x2070 ||
         (code >= 0x2074 && code <= 0x2079) || (code >= 0x2080 && code <= 0x2089) ||
         (code >= 0x2460 && code <= 0x2468);
}

bool is_numeric(int32_t code) {
  return is_decimal(code) || category(code) == UTF8PROC_CATEGORY_NL ||
         category(code) == UTF8PROC_CATEGORY_NO;
}

}  // namespace

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::vector<size_t> character_offsets(std::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); ++at) {
    if ((text[at] & 0xC0) != 0x80) offsets.push_back(at);
  }
  offsets.push_back(text.size());
  return offsets;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  for (size_t at = 0; at < text.size();) {
    const size_t length = decode_utf8(text, at).length;
    all.push_back(text.substr(at, length));
    at += length;
  }
  return all;
}

bool is_space(int32_t code) {
  return (code >= 0x1C && code <= 0x1F) || is_white_space(code);
}

bool is_printable(int32_t code) {
  if (code == ' ') return true;
  switch (category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_identifier_start(int32_t code) {
  return code == '_' || is_letter(code) || category(code) == UTF8PROC_CATEGORY_NL;
}

bool is_identifier_part(int32_t code) {
  const auto kind = category(code);
  return is_identifier_start(code) || kind == UTF8PROC_CATEGORY_MN ||
         kind == UTF8PROC_CATEGORY_MC || kind == UTF8PROC_CATEGORY_ND ||
         kind == UTF8PROC_CATEGORY_PC;
}

namespace {

template <typename Drops>
std::string_view strip_while(std::string_view text, Side side, Drops drops) {
  while (side != Side::right && !text.empty()) {
    const Character first = decode_utf8(text, 0);
    if (!drops(text.substr(0, first.length), first.code)) break;
    text.remove_prefix(first.length);
  }
  while (side != Side::left && !text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
    if (!drops(text.substr(at), decode_utf8(text, at).code)) break;
    text = text.substr(0, at);
  }
  return text;
}

}  // namespace

std::string_view strip(std::string_view text, Side side) {
  return strip_while(text, side, [](std::string_view, int32_t code) { return is_space(code); });
}

std::string_view strip(std::string_view text, Side side, std::string_view set) {
  // A whole character is found only where a character begins: UTF-8 synchronizes itself.
  return strip_while(text, side, [set](std::string_view character, int32_t) {
    return set.find(character) != std::string_view::npos;
  });
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Character character = decode_utf8(text, at);
    const int32_t code = character.code;
    const bool is_end = (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) ||
                        code == 0x85 || code == 0x2028 || code == 0x2029;
    size_t next = at + character.length;
    if (is_end) {
      if (code == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

namespace {

using IsOf = bool (*)(int32_t);

bool all_are(std::string_view text, IsOf is_of) {
  for (size_t at = 0; at < text.size();) {
    const Character character = decode_utf8(text, at);
    if (!is_of(character.code)) return false;
    at += character.length;
  }
  return true;
}

bool is_upper_code(int32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LU;
}
bool is_lower_code(int32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LL || code == 0xAA || code == 0xBA;
}
bool is_title_code(int32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LT;
}

// islower and isupper: some cased character, and none of the other case.
bool is_cased_as(std::string_view text, bool wants_upper) {
  bool is_cased = false;
  for (size_t at = 0; at < text.size();) {
    const Character character = decode_utf8(text, at);
    const bool upper = is_upper_code(character.code), lower = is_lower_code(character.code);
    if ((wants_upper ? lower : upper) || is_title_code(character.code)) return false;
    is_cased = is_cased || (wants_upper ? upper : lower);
    at += character.length;
  }
  return is_cased;
}

bool is_title_text(std::string_view text) {
  bool is_cased = false, after_cased = false;
  for (size_t at = 0; at < text.size();) {
    const Character character = decode_utf8(text, at);
    const bool upper = is_upper_code(character.code) || is_title_code(character.code);
    const bool lower = is_lower_code(character.code);
    if ((upper && after_cased) || (lower && !after_cased)) return false;
    after_cased = upper || lower;
    is_cased = is_cased || after_cased;
    at += character.length;
  }
  return is_cased;
}

}  // namespace

bool is_class(std::string_view text, TextClass text_class) {
  switch (text_class) {
    case TextClass::ascii:
      return is_ascii(text);
    case TextClass::printable:
      return all_are(text, is_printable);
    case TextClass::lower:
      return is_cased_as(text, false);
    case TextClass::upper:
      return is_cased_as(text, true);
    case TextClass::title:
      return is_title_text(text);
    default:
      break;
  }
  if (text.empty()) return false;
  switch (text_class) {
    case TextClass::alpha:
      return all_are(text, is_letter);
    case TextClass::alnum:
      return all_are(text, [](int32_t code) { return is_letter(code) || is_numeric(code); });
    case TextClass::decimal:
      return all_are(text, is_decimal);
    case TextClass::digit:
      return all_are(text, is_digit);
    case TextClass::numeric:
      return all_are(text, is_numeric);
    case TextClass::space:
      return all_are(text, is_space);
    default:
      return is_identifier_start(decode_utf8(text, 0).code) && all_are(text, is_identifier_part);
  }
}

}  // namespace octet::jinja
