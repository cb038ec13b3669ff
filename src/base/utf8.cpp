#include "base/utf8.h"

#include <cstring>

namespace octet {
namespace {

// How many bytes from `at` on are ASCII, eight at a time: all of a long run but its end.
size_t ascii_before(std::string_view text, size_t at) {
  constexpr uint64_t kHighBits = 0x8080808080808080ull;
  const size_t begin = at;
  for (uint64_t word = 0; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if ((word & kHighBits) != 0) break;
  }
  return at - begin;
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    at += ascii_before(text, at);
    if (at == text.size()) break;
    const Character character = decode_utf8(text, at);
    if (character.code == kInvalid) return at;
    at += character.length;
  }
  return std::string_view::npos;
}

}  // namespace octet
