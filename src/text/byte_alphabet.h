// GPT-2's alphabet: each byte as a printable character, so that vocabularies of bytes are text.
// Printable bytes of Latin-1 stand for themselves, the others for the characters from U+0100 on.
// Source: GPT-2's encoder, bytes_to_unicode.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace octet {

class ByteAlphabet {
 public:
  ByteAlphabet();
  // The bytes that the characters stand for, or nothing where one is not of the alphabet.
  std::optional<std::string> bytes_of(std::string_view characters) const;
  // Bytes that words are compared with: the token's, or of a token that is not of the alphabet,
  // which no word is, bytes that no text has.
  std::string matched_bytes(std::string_view token) const;
  std::string spelled(std::string_view bytes) const;  // as characters

 private:
  std::array<int, 0x180> bytes_;         // by code point; -1: not of the alphabet
  std::array<int32_t, 256> characters_;  // by byte
};

// The byte of "<0xXX>", as vocabularies of characters spell bytes; -1: it is none.
int byte_of_token(std::string_view token);

}  // namespace octet
