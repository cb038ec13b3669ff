#include "text/oniguruma_class.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace octet {
namespace {

int32_t number(std::string_view digits, int base) {
  const std::string_view known = base == 8 ? "01234567" : "0123456789abcdefABCDEF";
  if (digits.empty() || digits.size() > 8 || digits.find_first_not_of(known) != digits.npos)
    regex_not_supported("a character '{}'", digits);
  const long long code = std::stoll(std::string(digits), nullptr, base);
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) regex_damaged("no code point");
  return static_cast<int32_t>(code);
}

int32_t one_byte(std::string_view digits, int base) {
  if (digits.empty()) regex_not_supported("'\\x' without digits");
  const int32_t code = number(digits, base);
  if (code >= 0x80) regex_not_supported("a byte '{}' above 7F", digits);
  return code;
}

std::string_view take_digits(PatternReader& reader, size_t max_length, int base) {
  return reader.take_while(max_length, [base](char c) {
    const char lower = static_cast<char>(c | 0x20);
    if (base == 8) return c >= '0' && c <= '7';
    return is_ascii_digit(c) || (lower >= 'a' && lower <= 'f');
  });
}

bool is_range_next(const PatternReader& reader) {
  return reader.is_next("-") && !reader.is_next("-]") && !reader.is_next("-&&");
}

int32_t class_character_of(PatternReader& reader) {
  if (!reader.take("\\")) return reader.take_character();
  return reader.take("b") ? '\b' : take_escaped_character(reader);
}

// [:name:], behind its opening.
NamedSet take_posix(PatternReader& reader) {
  const bool is_not = reader.take("^");
  const std::string_view name = reader.take_until(':', "'[:' without an end");
  NamedSet found = posix_set(name);
  if (found.set.empty() || !reader.take("]")) regex_not_supported("'[:{}' in a class", name);
  if (is_not) found.set = complement(found.set);
  return found;
}

// A nested class, [:name:], \d and its like, \p{...}; false, and nothing read, for others.
bool add_set(PatternReader& reader, Case letters, CharacterSet& set) {
  const size_t begin = reader.position();
  NamedSet found;
  if (reader.take("[:")) {
    found = take_posix(reader);
  } else if (reader.take("[")) {
    set.add(take_class(reader, letters));
    return true;
  } else if (reader.take("\\")) {
    std::optional<NamedSet> one = take_escaped_set(reader, SetPlace::in_class);
    if (!one) {
      reader.go_to(begin);
      return false;
    }
    found = *std::move(one);
  } else {
    return false;
  }
  const bool is_ignored = letters == Case::ignored;
  if (is_ignored && found.set.items == R"(\p{L})") {
    found.set.items += R"(\x{345})";  // the mark whose capital is a letter
    found.is_closed = true;
  }
  if (is_ignored && !found.is_closed)
    regex_not_supported("(?i) of '{}' in a class", reader.since(begin));
  set.add(found.set);
  return true;
}

void add_range(PatternReader& reader, Case letters, CharacterSet& set) {
  const int32_t first = class_character_of(reader);
  int32_t last = first;
  if (is_range_next(reader) && !reader.is_next("-[")) {
    reader.take("-");
    CharacterSet end;
    if (add_set(reader, letters, end)) regex_not_supported("a range that ends with a set");
    last = class_character_of(reader);
    if (last < first) regex_damaged("a range whose end lies before its begin");
  }
  if (letters == Case::ignored) {
    for_each_folded_to_several([&](int32_t code, const std::u32string&) {
      if (first <= code && code <= last)
        regex_not_supported("(?i) of a class that has U+{:04X}", code);
    });
  }
  set.items += class_character(first);
  if (last != first) set.items += "-" + class_character(last);
}

// Up to a closing bracket or an intersection, which stay.
void add_items(PatternReader& reader, Case letters, CharacterSet& set) {
  while (!reader.is_next("]") && !reader.is_next("&&")) {
    if (reader.is_end()) regex_damaged("a class without an end");
    if (!add_set(reader, letters, set)) {
      add_range(reader, letters, set);
    } else if (is_range_next(reader)) {
      regex_not_supported("a range behind a set in a class");
    }
  }
}

}  // namespace

std::optional<NamedSet> take_escaped_set(PatternReader& reader, SetPlace place) {
  const size_t begin = reader.position();
  const char c = reader.take_char("a backslash at the end");
  if (CharacterSet set = set_of_letter(c, place); !set.empty()) return NamedSet{set, true};
  if (c != 'p' && c != 'P') {
    reader.go_to(begin);
    return std::nullopt;
  }
  if (!reader.take("{")) regex_not_supported("'\\{}' without braces", c);
  const bool is_not = reader.take("^") != (c == 'P');
  const std::string_view name = reader.take_until('}', "a property without an end");
  NamedSet found = property_set(name);
  if (found.set.empty()) regex_not_supported("a property '{}'", name);
  if (is_not) found.set = complement(found.set);
  return found;
}

int32_t take_escaped_character(PatternReader& reader) {
  constexpr std::string_view kNoEnd = "a character without an end";
  constexpr std::string_view kNames = "tnrfvae";
  constexpr std::string_view kCodes = "\t\n\r\f\v\a\x1B";
  const size_t begin = reader.position();
  const char c = reader.take_char("a backslash at the end");
  if (const size_t known = kNames.find(c); known != kNames.npos) return kCodes[known];
  if (c == 'x' && reader.take("{")) return number(reader.take_until('}', kNoEnd), 16);
  if (c == 'o' && reader.take("{")) return number(reader.take_until('}', kNoEnd), 8);
  if (c == 'x') return one_byte(take_digits(reader, 2, 16), 16);
  if (c == '0') return one_byte("0" + std::string(take_digits(reader, 2, 8)), 8);
  if (c == 'u') {
    const std::string_view digits = take_digits(reader, 4, 16);
    if (digits.size() != 4) regex_damaged("'\\u' without four digits");
    return number(digits, 16);
  }
  if (is_ascii_letter(c) || is_ascii_digit(c)) regex_not_supported("an escape '\\{}'", c);
  reader.go_to(begin);
  return reader.take_character();
}

CharacterSet take_class(PatternReader& reader, Case letters) {
  reader.enter();
  const bool is_not = reader.take("^");
  std::optional<CharacterSet> set;
  for (bool is_first = true;; is_first = false) {
    CharacterSet part;
    // A closing bracket that comes first is a character.
    if (is_first && reader.take("]")) part.items = "\\]";
    add_items(reader, letters, part);
    if (part.empty()) regex_not_supported("an empty part of a class");
    set = set ? intersection(*set, part) : part;
    if (reader.take("]")) break;
    reader.take("&&");
  }
  reader.leave();
  return is_not ? complement(*set) : *set;
}

std::u32string folded_case(int32_t code) {
  std::array<utf8proc_int32_t, 8> codes{};
  int last_class = 0;
  const auto n =
      utf8proc_decompose_char(code, codes.data(), codes.size(), UTF8PROC_CASEFOLD, &last_class);
  std::u32string out;
  for (size_t i = 0; i < static_cast<size_t>(std::max<utf8proc_ssize_t>(n, 0)); ++i)
    out += static_cast<char32_t>(codes[i]);
  return out;
}

void for_each_folded_to_several(const FoldVisit& fn) {
  constexpr std::pair<int32_t, int32_t> kWhere[] = {
      {0xDF, 0x1F0}, {0x390, 0x3B0}, {0x587, 0x587}, {0x1E96, 0x1FFC}, {0xFB00, 0xFB17}};
  for (const auto& [first, last] : kWhere) {
    for (int32_t code = first; code <= last; ++code) {
      if (const std::u32string several = folded_case(code); several.size() > 1) fn(code, several);
    }
  }
}

}  // namespace octet
