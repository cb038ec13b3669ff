// Numbers and lines in texts.
#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace octet {

// All of the text as a number, as std::from_chars reads it (`how`: the base of an integer); nothing
// where it is none, or where the type cannot hold it.
template <typename Number, typename... How>
std::optional<Number> parse_number(std::string_view text, How... how) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, how...);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

// Takes the first line of a text that is not empty, without its end: LF, or CR LF.
inline std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace octet
