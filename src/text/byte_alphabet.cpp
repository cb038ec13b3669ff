#include "text/byte_alphabet.h"

#include "text/unicode.h"

namespace octet {

ByteAlphabet::ByteAlphabet() {
  bytes_.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    bytes_[static_cast<size_t>(is_printable ? byte : next++)] = byte;
  }
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

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char digit : token.substr(3, 2)) {
    if (digit >= '0' && digit <= '9') {
      value = value * 16 + (digit - '0');
    } else if (digit >= 'A' && digit <= 'F') {
      value = value * 16 + (digit - 'A' + 10);
    } else {
      return -1;
    }
  }
  return value;
}

}  // namespace octet
