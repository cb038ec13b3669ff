#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace octet {
namespace {

uint32_t byte_at(std::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// Of a whole character.
uint32_t code_point(std::string_view text, size_t at, size_t length) {
  constexpr uint32_t kLeadBits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  uint32_t point = byte_at(text, at) & kLeadBits[length];
  for (size_t i = 1; i < length; ++i) point = point << 6 | (byte_at(text, at + i) & 0x3F);
  return point;
}

bool is_obeyed(uint32_t point) {
  const bool is_control = point < 0x20 || (point >= 0x7F && point < 0xA0);
  const bool is_separator = point == 0x2028 || point == 0x2029;
  const bool turns_text = point == 0x061C || (point >= 0x200E && point <= 0x200F) ||
                          (point >= 0x202A && point <= 0x202E) ||
                          (point >= 0x2066 && point <= 0x2069);
  return is_control || is_separator || turns_text;
}

std::string escaped(uint32_t point, Lines lines) {
  if (lines == Lines::many && (point == '\n' || point == '\t')) return {static_cast<char>(point)};
  if (point == '\n') return "\\n";
  if (point == '\r') return "\\r";
  if (point == '\t') return "\\t";
  return fmt::format("\\u{:04x}", point);
}

}  // namespace

size_t utf8_length(std::string_view text, size_t at) {
  const uint32_t lead = byte_at(text, at);
  if (lead < 0x80) return 1;
  const size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (length == 0 || length > text.size() - at) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte_at(text, at + i) & 0xC0) != 0x80) return 0;
  }
  constexpr uint32_t kMin[] = {0, 0, 0x80, 0x800, 0x10000};
  const uint32_t point = code_point(text, at, length);
  const bool is_surrogate = point >= 0xD800 && point < 0xE000;
  return point < kMin[length] || is_surrogate || point > 0x10FFFF ? 0 : length;
}

std::string printable(std::string_view text, Lines lines) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text, i);
    if (length == 0) {
      out += fmt::format("\\x{:02x}", byte_at(text, i));
    } else if (const uint32_t point = code_point(text, i, length); is_obeyed(point)) {
      out += escaped(point, lines);
    } else {
      out += text.substr(i, length);
    }
    i += std::max<size_t>(length, 1);
  }
  return out;
}

}  // namespace octet
