#include "cli/page.h"

#include <fmt/format.h>

#include "cli/markup.h"

namespace octet {

// Embedded by cli/CMakeLists.txt.
extern const std::string_view kDygraphsScript, kDygraphsStyle, kDygraphsLicence, kPageFrame,
    kPageStyle, kPartsScript, kChartsScript, kCurvesScript, kReportScript, kPageScript;

namespace {

std::string row_markup(const std::vector<std::string>& cells, std::string_view name) {
  std::string out = "<tr>";
  for (const std::string& cell : cells)
    out += fmt::format("<{0}>{1}</{0}>", name, markup_text(cell));
  return out + "</tr>\n";
}

std::string table_markup(const PageTable& table) {
  std::string out =
      fmt::format("<h2>{}</h2>\n<div class=\"card scroll\"><table>\n", markup_text(table.title)) +
      row_markup(table.table.columns, "th");
  for (const std::vector<std::string>& row : table.table.rows) out += row_markup(row, "td");
  return out + "</table></div>\n";
}

}  // namespace

std::string page_json(const OrderedJson& data) {
  std::string json;  // in JSON a "<" stands in strings alone, where an escape means the same
  for (const char ch : data.dump(-1, ' ', true, OrderedJson::error_handler_t::replace))
    json += ch == '<' ? "\\u003c" : std::string(1, ch);
  return json;
}

std::string page_text(std::string_view title, const OrderedJson& data,
                      const std::vector<PageTable>& tables, Polls polls) {
  std::string static_tables;
  for (const PageTable& table : tables) static_tables += table_markup(table);
  return fmt::format(fmt::runtime(kPageFrame), fmt::arg("title", title),
                     fmt::arg("asks", polls == Polls::yes ? "; connect-src 'self'" : ""),
                     fmt::arg("library_style", kDygraphsStyle), fmt::arg("style", kPageStyle),
                     fmt::arg("tables", static_tables), fmt::arg("data", page_json(data)),
                     fmt::arg("licence", kDygraphsLicence), fmt::arg("library", kDygraphsScript),
                     fmt::arg("parts", kPartsScript), fmt::arg("charts", kChartsScript),
                     fmt::arg("curves", kCurvesScript), fmt::arg("report", kReportScript),
                     fmt::arg("script", kPageScript));
}

}  // namespace octet
