#include "cli/page.h"

#include <fmt/format.h>

namespace octet {

// Embedded by cli/CMakeLists.txt.
extern const std::string_view kDygraphsScript, kDygraphsStyle, kDygraphsLicence, kPageFrame,
    kPageStyle, kChartsScript, kPageScript;

std::string page_text(std::string_view title, const OrderedJson& data) {
  std::string json;  // in JSON a "<" stands in strings alone, where an escape means the same
  for (const char ch : data.dump(-1, ' ', true, OrderedJson::error_handler_t::replace))
    json += ch == '<' ? "\\u003c" : std::string(1, ch);
  return fmt::format(fmt::runtime(kPageFrame), fmt::arg("title", title),
                     fmt::arg("library_style", kDygraphsStyle), fmt::arg("style", kPageStyle),
                     fmt::arg("data", json), fmt::arg("licence", kDygraphsLicence),
                     fmt::arg("library", kDygraphsScript), fmt::arg("charts", kChartsScript),
                     fmt::arg("script", kPageScript));
}

}  // namespace octet
