// Characters: their properties, as regular expressions name them, and the normal forms.
// Source: the Unicode Standard and its annexes 15 and 29, by utf8proc's tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/named_enum.h"
#include "base/utf8.h"

namespace octet {

void append_utf8(std::string& text, int32_t code);

bool is_white_space(int32_t code);         // the property White_Space
bool is_word_character(int32_t code);      // \w
bool is_letter(int32_t code);              // \p{L}
bool is_number(int32_t code);              // \p{N}
bool is_punctuation(int32_t code);         // \p{P}, and of ASCII all symbols as well
bool is_mark(int32_t code);                // \p{M}
bool is_nonspacing_mark(int32_t code);     // \p{Mn}
bool is_control_or_private(int32_t code);  // \p{Cc}, \p{Cf}, \p{Co}
void append_lower_case(int32_t code, std::string& text);

// Calls fn(bytes, code) for each character.
template <typename Fn>
void for_each_character(std::string_view text, Fn fn) {
  for (size_t at = 0; at < text.size();) {
    const Character character = decode_utf8(text, at);
    fn(text.substr(at, character.length), character.code);
    at += character.length;
  }
}

// Bytes of the extended grapheme cluster that begins a text which is not empty (annex 29).
size_t grapheme_length(std::string_view text);
// Calls fn(bytes) for each cluster.
template <typename Fn>
void for_each_grapheme(std::string_view text, Fn fn) {
  while (!text.empty()) {
    const size_t length = grapheme_length(text);
    fn(text.substr(0, length));
    text.remove_prefix(length);
  }
}

enum class Side { left, right, both };
// Without the characters at the sides of which drops(bytes, code) is true.
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

enum class NormalForm { nfc, nfd, nfkc, nfkd };
constexpr auto value_names(NormalForm) {
  return name_list("NFC", "NFD", "NFKC", "NFKD");
}

class UnicodeNormalizer {
 public:
  explicit UnicodeNormalizer(NormalForm form);
  // Text of valid UTF-8. Appends to `out`. n log n.
  void append(std::string_view text, std::string& out) const;

 private:
  void append_part(std::string_view text, std::string& out) const;

  NormalForm form_;
  std::vector<bool> is_inert_;  // by code point: stays, and nothing passes over it
};

}  // namespace octet
