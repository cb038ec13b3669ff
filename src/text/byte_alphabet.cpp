#include "text/byte_alphabet.h"

#include <utility>

#include "base/parse_text.h"
#include "text/unicode.h"

namespace octet {

ByteAlphabet::ByteAlphabet() {
  bytes_.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const int character = is_printable ? byte : next++;
    bytes_[static_cast<size_t>(character)] = byte;
    characters_[static_cast<size_t>(byte)] = character;
  }
}

std::string ByteAlphabet::spelled(std::string_view bytes) const {
  std::string text;
  for (const char byte : bytes) append_utf8(text, characters_[static_cast<unsigned char>(byte)]);
  return text;
}

std::optional<std::string> ByteAlphabet::bytes_of(std::string_view characters) const {
  std::string bytes;
  for (size_t at = 0; at < characters.size();) {
    const Character character = decode_utf8(characters, at);
    const auto code = static_cast<size_t>(character.code);
    if (character.code < 0 || code >= bytes_.size() || bytes_[code] < 0) return std::nullopt;
    bytes += static_cast<char>(bytes_[code]);
    at += character.length;
  }
  return bytes;
}

std::string ByteAlphabet::matched_bytes(std::string_view token) const {
  constexpr std::string_view kOfNoText = "\xFF\xFF\xFF";
  if (auto bytes = bytes_of(token)) return *std::move(bytes);
  return std::string(kOfNoText).append(token);
}

int byte_of_token(std::string_view token) {
  const bool is_byte = token.size() == 6 && token.starts_with("<0x") && token[5] == '>' &&
                       token.find_first_not_of("0123456789ABCDEF", 3) == 5;
  return is_byte ? parse_number<int>(token.substr(3, 2), 16).value() : -1;
}

}  // namespace octet
