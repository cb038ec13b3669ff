// Rules for each character of a text, one by one: steps of normalizers. The classes are those of
// unicode.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace octet {

struct CharacterRule {
  static constexpr int8_t kDropped = -1;
  std::array<int8_t, 128> ascii;                   // what each becomes, or kDropped
  void (*append)(int32_t code, std::string& out);  // what any other becomes
};

// BERT's clean_text: NUL, U+FFFD, control, format and private characters go, but for tab, newline
// and return; white space becomes a space.
extern const CharacterRule kCleanText;
// BERT's handle_chinese_chars: ideographs get a space on both sides.
extern const CharacterRule kSpaceIdeographs;
// SentencePiece's rule "nmt": control characters go, white space and marks of it become a space.
extern const CharacterRule kNmt;
extern const CharacterRule kDropMarks;            // Mn, Mc and Me: StripAccents
extern const CharacterRule kDropNonspacingMarks;  // Mn: BERT's strip_accents, behind NFD
// Unicode's full lower case without context: a capital sigma is never a final one.
extern const CharacterRule kLowercase;

// Appends `text` by the rule; bytes that are no UTF-8 stay.
void append_by(const CharacterRule& rule, std::string_view text, std::string& out);

}  // namespace octet
