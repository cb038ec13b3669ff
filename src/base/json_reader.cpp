#include "base/json_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/parse_text.h"

namespace octet {
namespace {

constexpr std::string_view kOfNumbers = "+-.0123456789eE";
constexpr size_t kMaxDigits = 24;  // that are shown

std::string shortened(std::string_view digits) {
  if (digits.size() <= kMaxDigits) return std::string(digits);
  return fmt::format("{}... of {} characters", digits.substr(0, kMaxDigits), digits.size());
}

// The code of \uXXXX at text[at]; -1: another escape.
int code_at(std::string_view text, size_t at) {
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return -1;
  return parse_number<int>(text.substr(at + 2, 4), 16).value_or(-1);
}

bool is_high(int code) {
  return code >= 0xD800 && code < 0xDC00;
}

bool is_low(int code) {
  return code >= 0xDC00 && code < 0xE000;
}

// The escape within the string that is half of a pair.
std::optional<std::string_view> half_of_pair(std::string_view string) {
  for (size_t at = 0; at < string.size();) {
    if (string[at] != '\\') {
      ++at;
      continue;
    }
    const int code = code_at(string, at);
    if (is_high(code) && is_low(code_at(string, at + 6))) {
      at += 12;
    } else if (is_high(code) || is_low(code)) {
      return string.substr(at, 6);
    } else {
      at += 2;
    }
  }
  return std::nullopt;
}

// Behind the quote that ends the string which begins at `at`; npos where none does.
size_t end_of_string(std::string_view text, size_t at) {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      return at + 1;
    }
  }
  return text.npos;
}

std::string unused_mark(std::string_view text) {
  for (int n = 0;; ++n) {
    std::string mark = fmt::format("unread-{}-", n);
    if (text.find(mark) == text.npos) return mark;
  }
}

bool is_beyond_double(std::string_view number) {
  return std::isinf(std::strtod(std::string(number).c_str(), nullptr));
}

}  // namespace

std::string name_of_integer(std::string_view digits) {
  return "the integer " + shortened(digits);
}

ReadableJson readable_json(std::string_view text) {
  ReadableJson out;
  out.mark = unused_mark(text);
  const auto replace = [&](std::string name, bool is_text = false) {
    out.text += fmt::format("\"{}{}\"", out.mark, out.odd.size());
    out.odd.push_back({std::move(name), is_text});
  };
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    size_t n = 1;
    if (rest.front() == '"') {
      const size_t end = end_of_string(text, at);
      n = end == text.npos ? rest.size() : end - at;
      const auto half = end == text.npos ? std::nullopt : half_of_pair(rest.substr(0, n));
      if (half) {
        replace(fmt::format("a text with {}, half of a pair", *half), /*is_text=*/true);
        at += n;
        continue;
      }
    } else if (rest.starts_with("NaN") || rest.starts_with("Infinity") ||
               rest.starts_with("-Infinity")) {
      n = rest[0] == 'N' ? 3 : rest[0] == 'I' ? 8 : 9;
      replace(std::string(rest.substr(0, n)));
      at += n;
      continue;
    } else if (kOfNumbers.find(rest.front()) != kOfNumbers.npos) {
      n = std::min(rest.find_first_not_of(kOfNumbers), rest.size());
      if (is_beyond_double(rest.substr(0, n))) {
        replace("the number " + shortened(rest.substr(0, n)));
        at += n;
        continue;
      }
    }
    out.text += rest.substr(0, n);
    at += n;
  }
  return out;
}

}  // namespace octet
