// Characters of UTF-8: their properties, as regular expressions name them, and the normal forms.
// Source: the Unicode Standard and its annex 15, by utf8proc's tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

inline constexpr int32_t kInvalid = -1;

struct Character {
  int32_t code = kInvalid;  // kInvalid: one byte that begins no character
  size_t length = 1;        // bytes
};

// The character at text[at]; at < text.size(). No overlong forms, no surrogates.
Character decode_utf8(std::string_view text, size_t at);
void append_utf8(std::string& text, int32_t code);

// The first byte that is no UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);

bool is_white_space(int32_t code);         // the property White_Space
bool is_word_character(int32_t code);      // \w
bool is_letter(int32_t code);              // \p{L}
bool is_number(int32_t code);              // \p{N}
bool is_punctuation(int32_t code);         // \p{P}, and of ASCII all symbols as well
bool is_mark(int32_t code);                // \p{M}
bool is_nonspacing_mark(int32_t code);     // \p{Mn}
bool is_control_or_private(int32_t code);  // \p{Cc}, \p{Cf}, \p{Co}
void append_lower_case(int32_t code, std::string& text);

enum class NormalForm { nfc, nfd, nfkc, nfkd };

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
