// Text between tags of HTML or SVG, or in an attribute.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/utf8.h"

namespace octet {

// Bytes that are not UTF-8 become U+FFFD, control characters blanks.
inline std::string markup_text(std::string_view text) {
  std::string out;
  for (size_t i = 0, length = 0; i < text.size(); i += length) {
    const Character character = decode_utf8(text, i);
    length = character.length;
    const char ch = text[i];
    if (character.code == kInvalid) {
      out += "\uFFFD";
    } else if (length > 1) {
      out += text.substr(i, length);
    } else if (std::string_view("<>&\"").find(ch) != std::string_view::npos) {
      out += fmt::format("&#{};", int{ch});
    } else {
      out += ch < ' ' ? ' ' : ch;
    }
  }
  return out;
}

}  // namespace octet
