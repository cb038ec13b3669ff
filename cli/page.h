// A page that needs nothing but itself: data as JSON, and the script that builds it (cli/page.js).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ordered_json.h"
#include "cli/common.h"

namespace octet {

struct PageTable {
  std::string title;
  Table table;
};

// Yes: the page may ask the server that it came from for newer data.
enum class Polls : uint8_t { no, yes };

// cli/page.html with the style, dygraphs, its licence, the script and the data. Of the data nothing
// ends the <script> element that holds it or begins a comment there; what is not UTF-8 becomes
// U+FFFD, and numbers that are not finite become null. Where JavaScript is off, `tables` is all
// that the page shows.
std::string page_text(std::string_view title, const OrderedJson& data,
                      const std::vector<PageTable>& tables, Polls polls = Polls::no);
// The data as a page holds it.
std::string page_json(const OrderedJson& data);

}  // namespace octet
