#include "base/printable.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace octet {
namespace {

bool is_obeyed(int32_t point) {
  const bool is_control = point < 0x20 || (point >= 0x7F && point < 0xA0);
  const bool is_separator = point == 0x2028 || point == 0x2029;
  const bool turns_text = point == 0x061C || (point >= 0x200E && point <= 0x200F) ||
                          (point >= 0x202A && point <= 0x202E) ||
                          (point >= 0x2066 && point <= 0x2069);
  return is_control || is_separator || turns_text;
}

std::string escaped(int32_t point, Lines lines) {
  if (lines == Lines::many && (point == '\n' || point == '\t')) return {static_cast<char>(point)};
  if (point == '\n') return "\\n";
  if (point == '\r') return "\\r";
  if (point == '\t') return "\\t";
  return fmt::format("\\u{:04x}", point);
}

}  // namespace

std::string printable(std::string_view text, Lines lines) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto [point, length] = decode_utf8(text, at);
    if (point == kInvalid) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
    } else if (is_obeyed(point)) {
      out += escaped(point, lines);
    } else {
      out += text.substr(at, length);
    }
    at += length;
  }
  return out;
}

}  // namespace octet
