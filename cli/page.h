// A page that needs nothing but itself: data as JSON, and the script that builds it (cli/page.js).
#pragma once

#include <string>
#include <string_view>

#include "base/ordered_json.h"

namespace octet {

// cli/page.html with the style, dygraphs, its licence, the script and the data. Of the data nothing
// ends the <script> element that holds it or begins a comment there; what is not UTF-8 becomes
// U+FFFD, and numbers that are not finite become null.
std::string page_text(std::string_view title, const OrderedJson& data);

}  // namespace octet
