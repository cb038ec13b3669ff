// Text and numbers as pages and figures show them.
#pragma once

#include <string>
#include <string_view>

namespace octet {

// "<" and the like as entities, for text and attributes. What is not UTF-8 becomes U+FFFD; control
// characters become blanks.
std::string html_text(std::string_view text);

// "3.2109", "1.2e-04", "8.1k"; "not finite"
std::string short_number(double value);

}  // namespace octet
