#include "cli/shown_table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/parse_text.h"
#include "base/printable.h"

namespace octet {
namespace {

constexpr size_t kGap = 2;  // between columns
constexpr int kDigits = 4;

bool is_digit(char ch) {
  return ch >= '0' && ch <= '9';
}

// Characters that may stand around a number, so that it is none of a name, a version or a date.
bool may_stand_beside(char ch) {
  return std::string_view(" +-()[],;:%/=x").find(ch) != std::string_view::npos;
}

// The end of "12.345e-6" at `begin`; `begin` where no number with a point begins there.
size_t end_of_figure(std::string_view text, size_t begin) {
  size_t at = begin;
  while (at < text.size() && is_digit(text[at])) ++at;
  if (at == begin || at + 1 >= text.size() || text[at] != '.' || !is_digit(text[at + 1]))
    return begin;
  ++at;
  while (at < text.size() && is_digit(text[at])) ++at;
  if (at < text.size() && text[at] == 'e') {
    size_t exponent = at + 1;
    if (exponent < text.size() && (text[exponent] == '-' || text[exponent] == '+')) ++exponent;
    if (exponent < text.size() && is_digit(text[exponent])) at = exponent;
    while (at < text.size() && is_digit(text[at])) ++at;
  }
  return at == text.size() || may_stand_beside(text[at]) ? at : begin;
}

int significant_digits(std::string_view figure) {
  int n = 0;
  for (const char ch : figure.substr(0, figure.find('e'))) {
    if (is_digit(ch) && (n > 0 || ch != '0')) ++n;
  }
  return n;
}

// 1234.56 is 1235: digits before the point all stay.
std::string short_figure(std::string_view figure) {
  const auto value = parse_number<double>(figure);
  if (!value || significant_digits(figure) <= kDigits) return std::string(figure);
  if (figure.find('e') != figure.npos || *value < 1e-4)
    return fmt::format("{:.{}e}", *value, kDigits - 1);
  const auto n_before = static_cast<int>(figure.find('.'));
  if (*value >= 1) return fmt::format("{:.{}f}", *value, std::max(kDigits - n_before, 0));
  return fmt::format("{:.{}g}", *value, kDigits);
}

// At most `width` columns, cut between characters.
std::string cut(const std::string& text, size_t width) {
  constexpr std::string_view kMore = "...";
  if (display_width(text) <= width) return text;
  const size_t kept = width > kMore.size() ? width - kMore.size() : 0;
  size_t end = 0;
  for (size_t n = 0; end < text.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(text[end]) & 0xc0) != 0x80;
    if (begins && n++ == kept) break;
  }
  return text.substr(0, end) + std::string(kMore.substr(0, std::min(width, kMore.size())));
}

size_t width_of(const Table& table, size_t column) {
  size_t width = display_width(table.columns[column]);
  for (const auto& row : table.rows) width = std::max(width, display_width(row[column]));
  return width;
}

Table with_columns(const Table& table, const std::vector<size_t>& columns) {
  Table part;
  for (const size_t i : columns) part.columns.push_back(table.columns[i]);
  for (const auto& row : table.rows) {
    part.rows.emplace_back();
    for (const size_t i : columns) part.rows.back().push_back(row[i]);
  }
  return part;
}

// Cells within `most` columns, the first column's within half a line.
Table with_cut_cells(const Table& given, size_t width) {
  Table table = given;
  for (auto& row : table.rows)
    for (std::string& cell : row) cell = printable(cell);
  const size_t first = std::max<size_t>(width / 2, 1);
  for (auto& row : table.rows)
    if (!row.empty() && row.size() > 1) row[0] = cut(row[0], first);
  if (!table.columns.empty() && table.columns.size() > 1)
    table.columns[0] = cut(table.columns[0], first);
  const size_t used = table.columns.size() > 1 ? width_of(table, 0) + kGap : 0;
  const size_t most = width > used ? width - used : 1;
  for (auto& row : table.rows)
    for (size_t i = table.columns.size() > 1 ? 1 : 0; i < row.size(); ++i)
      row[i] = cut(row[i], most);
  return table;
}

}  // namespace

std::optional<size_t> output_width() {
  if (::isatty(STDOUT_FILENO) != 1) return std::nullopt;
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

std::string with_short_figures(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const bool may_begin = at == 0 || may_stand_beside(text[at - 1]);
    const size_t end = may_begin ? end_of_figure(text, at) : at;
    if (end == at) {
      result += text[at++];
    } else {
      result += short_figure(text.substr(at, end - at));
      at = end;
    }
  }
  return result;
}

std::string fitted_text(const Table& given, size_t width) {
  const Table table = with_cut_cells(given, width);
  std::string text;
  for (size_t next = std::min<size_t>(1, table.columns.size());;) {
    std::vector<size_t> columns = {0};
    size_t used = table.columns.empty() ? 0 : width_of(table, 0);
    while (next < table.columns.size()) {
      const size_t more = kGap + width_of(table, next);
      if (columns.size() > 1 && used + more > width) break;
      columns.push_back(next++);
      used += more;
    }
    if (table.columns.empty()) return table_text(table);
    text += (text.empty() ? "" : "\n") + table_text(with_columns(table, columns));
    if (next >= table.columns.size()) return text;
  }
}

std::string shown_text(const GlobalOptions& options, const Table& given) {
  const auto width = output_width();
  if (!width || options.wide) return table_text(given);
  Table table = given;
  for (auto& row : table.rows)
    for (std::string& cell : row) cell = with_short_figures(cell);
  return fitted_text(table, *width);
}

}  // namespace octet
