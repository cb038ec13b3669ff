#include "cli/html_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/printable.h"

namespace octet {

std::string html_text(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text, i);
    const char ch = text[i];
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (length > 1) {
      out += text.substr(i, length);
    } else if (ch == '&') {
      out += "&amp;";
    } else if (ch == '<') {
      out += "&lt;";
    } else if (ch == '>') {
      out += "&gt;";
    } else if (ch == '"') {
      out += "&quot;";
    } else if (ch == '\'') {
      out += "&#39;";
    } else {
      out += static_cast<unsigned char>(ch) < 0x20 || ch == 0x7F ? ' ' : ch;
    }
    i += std::max<size_t>(length, 1);
  }
  return out;
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return "not finite";
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size >= 1e9) return fmt::format("{:.3g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.3g}k", value / 1e3);
  if (size < 1e-3) return fmt::format("{:.2g}", value);
  return fmt::format("{:.4g}", value);
}

}  // namespace octet
