#include "text/oniguruma_sets.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "text/unicode.h"

namespace octet {
namespace {

// PCRE2's \s has U+180E as well.
constexpr std::string_view kSpaces =
    R"(\t-\r\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Oniguruma has these in \w, but not in [\w].
constexpr std::string_view kLatinNumbers = R"(\xb2\xb3\xb9\xbc-\xbe)";
constexpr std::string_view kHexDigits = "0-9a-fA-F";

// \p{name} or \P{name} alone.
bool is_one_property(std::string_view items) {
  return (items.starts_with("\\p{") || items.starts_with("\\P{")) &&
         items.find('}') + 1 == items.size();
}

CharacterSet set_of(std::string_view items) {
  return {std::string(items), {}};
}

struct Name {
  std::string_view name, items;
  bool is_closed = false;
};

constexpr Name kPosix[] = {
    {"alnum", R"(\p{Alphabetic}\p{Nd})", true},
    {"alpha", R"(\p{Alphabetic})", true},
    {"ascii", R"(\x00-\x7f)"},
    {"blank", R"(\t\p{Zs})", true},
    {"cntrl", R"(\p{Cc})", true},
    {"digit", R"(\p{Nd})", true},
    {"lower", R"(\p{Lowercase})"},
    {"punct", R"(\p{P}\p{S})", true},
    {"space", kSpaces, true},
    {"upper", R"(\p{Uppercase})"},
    {"word", kWord, true},
    {"xdigit", kHexDigits, true},
};

// General categories by their long names.
constexpr Name kCategories[] = {
    {"letter", "L"},
    {"casedletter", "L&"},
    {"lc", "L&"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"combiningmark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"punct", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"unassigned", "Cn"},
    {"privateuse", "Co"},
};

constexpr std::string_view kShortCategories[] = {
    "l",  "lu", "ll", "lt", "lm", "lo", "m",  "mn", "mc", "me", "n",  "nd",
    "nl", "no", "p",  "pc", "pd", "ps", "pe", "pi", "pf", "po", "s",  "sm",
    "sc", "sk", "so", "z",  "zs", "zl", "zp", "c",  "cc", "cf", "cn", "co"};

constexpr std::string_view kProperties[] = {
    "alphabetic",           "lowercase",     "uppercase",         "emoji",
    "emojipresentation",    "emojimodifier", "emojimodifierbase", "emojicomponent",
    "extendedpictographic", "ideographic",   "unifiedideograph",  "dash",
    "asciihexdigit",        "math",          "quotationmark",     "variationselector",
    "regionalindicator"};

constexpr std::string_view kCaselessScripts[] = {"han", "hiragana", "katakana", "hangul", "thai"};

template <size_t N>
const Name* find_name(const Name (&names)[N], std::string_view name) {
  const auto* found = std::find_if(std::begin(names), std::end(names),
                                   [&](const Name& row) { return row.name == name; });
  return found == std::end(names) ? nullptr : found;
}

template <size_t N>
bool has(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

NamedSet category(std::string_view name) {
  // \p{L} has every cased letter but U+0345, a mark whose capital is a letter.
  const bool is_closed = has({"N", "Nd", "P", "Z", "Zs", "S"}, name);
  return {set_of(fmt::format("\\p{{{}}}", name)), is_closed};
}

}  // namespace

void CharacterSet::add(const CharacterSet& other) {
  items += other.items;
  others.insert(others.end(), other.others.begin(), other.others.end());
}

std::string CharacterSet::expression() const {
  if (others.empty()) return fmt::format("[{}]", items);
  if (items.empty() && others.size() == 1) return others[0];
  std::string all = items.empty() ? "" : fmt::format("[{}]|", items);
  for (const std::string& other : others) all += other + "|";
  all.pop_back();
  return fmt::format("(?:{})", all);
}

std::string CharacterSet::without_expression() const {
  if (others.empty()) return fmt::format("[^{}]", items);
  return fmt::format("(?:(?!{})(?s:.))", expression());
}

std::string CharacterSet::bare_expression() const {
  return others.empty() && is_one_property(items) ? items : expression();
}

CharacterSet complement(const CharacterSet& set) {
  if (!set.others.empty() || !is_one_property(set.items)) return {"", {set.without_expression()}};
  CharacterSet other = set;
  other.items[1] = set.items[1] == 'p' ? 'P' : 'p';
  return other;
}

CharacterSet intersection(const CharacterSet& left, const CharacterSet& right) {
  return {"", {fmt::format("(?:(?={}){})", left.expression(), right.expression())}};
}

CharacterSet set_of_letter(char letter, SetPlace place) {
  switch (letter) {
    case 'd':
      return set_of(R"(\p{Nd})");
    case 'D':
      return set_of(R"(\P{Nd})");
    case 's':
      return set_of(kSpaces);
    case 'S':
      return place == SetPlace::in_class ? set_of(R"(\S\x{180e})") : complement(set_of(kSpaces));
    case 'h':
      return set_of(kHexDigits);
    case 'H':
      return complement(set_of(kHexDigits));
    case 'w':
    case 'W': {
      CharacterSet word = set_of(kWord);
      if (place == SetPlace::bare) word.items += kLatinNumbers;
      return letter == 'w' ? word : complement(word);
    }
    default:
      return {};
  }
}

NamedSet posix_set(std::string_view name) {
  if (const Name* known = find_name(kPosix, name)) return {set_of(known->items), known->is_closed};
  if (name == "print") return {complement(set_of(R"(\p{Cc}\p{Cn}\p{Cs}\p{Zl}\p{Zp})")), true};
  if (name == "graph")
    return {complement(set_of(R"(\p{Cc}\p{Cn}\p{Cs})" + std::string(kSpaces))), true};
  return {};
}

NamedSet property_set(std::string_view name) {
  std::string bare;  // how names compare
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    if ((c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')) return {};
    bare += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  if (bare.empty()) return {};
  if (bare == "any") return {set_of(R"(\x{0}-\x{10ffff})"), true};
  if (bare == "assigned") return {set_of(R"(\P{Cn})"), true};
  if (bare == "whitespace") return posix_set("space");
  if (bare == "hexdigit") return {set_of(R"(\p{Hex_Digit})"), true};
  if (const Name* known = find_name(kCategories, bare)) return category(known->items);
  if (has(kShortCategories, bare)) {
    bare[0] = static_cast<char>(bare[0] - 'a' + 'A');
    return category(bare);
  }
  if (bare == "word") return {};  // not the same in a class
  if (NamedSet posix = posix_set(bare); !posix.set.empty()) return posix;
  if (has(kProperties, bare)) return {set_of(fmt::format("\\p{{{}}}", bare)), false};
  return {set_of(fmt::format("\\p{{sc:{}}}", bare)), has(kCaselessScripts, bare)};
}

std::string class_character(int32_t code) {
  if (code < 0x20 || code == 0x7F) return fmt::format("\\x{{{:x}}}", code);
  std::string text;
  if (std::string_view("\\[]^-&:").find(static_cast<char>(code)) != std::string_view::npos &&
      code < 0x80)
    text = "\\";
  append_utf8(text, code);
  return text;
}

}  // namespace octet
