// Text that came from outside, made fit for a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace octet {

enum class Lines : uint8_t {
  one,   // a cell or a message: line feeds, carriage returns and tabs are escaped too
  many,  // a page: line feeds and tabs are kept
};

// The text with everything escaped that a terminal would obey instead of show: control characters
// (C0, DEL, C1), separators of lines and paragraphs and changes of direction as \u001b, line feeds
// as \n, carriage returns as \r, tabs as \t, and bytes that are no UTF-8 as \xff. JSON in UTF-8
// stays JSON of the same meaning with Lines::many. A backslash stays as it is.
std::string printable(std::string_view text, Lines lines = Lines::one);

}  // namespace octet
