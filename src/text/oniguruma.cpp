#include "text/oniguruma.h"

#include <algorithm>
#include <optional>

#include "text/oniguruma_class.h"
#include "text/oniguruma_reader.h"
#include "text/unicode.h"

namespace octet {
namespace {

bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

struct Options {
  Case letters = Case::counts;
  bool dot_takes_newline = false, skips_blanks = false;

  std::string open() const { return letters == Case::ignored ? "(?i:" : "(?-i:"; }
};

struct Atom {
  std::string text;
  bool is_repeatable = true;
};

constexpr std::pair<std::string_view, std::string_view> kLetters[] = {
    {"N", R"([^\n])"},
    {"O", "(?s:.)"},
    {"R", R"((?>\r\n|[\n-\r\x{85}\x{2028}\x{2029}]))"},
};

// Reads the expression once and writes it on the way.
class Translation {
 public:
  explicit Translation(std::string_view text) : reader_(text) {}

  std::string all() {
    std::string out = alternatives({});
    if (!reader_.is_end()) regex_damaged("unmatched closing parenthesis");
    if (max_reference_ > n_groups_ || (max_reference_ > 0 && has_names_))
      regex_damaged("a reference to a group that does not exist");
    return out;
  }

 private:
  // Comments, and under (?x) blanks.
  void skip(const Options& options) {
    while (true) {
      if (reader_.take("(?#")) {
        reader_.take_until(')', "a comment without an end");
      } else if (options.skips_blanks && reader_.is_next_of(is_blank)) {
        reader_.take_char("");
      } else if (options.skips_blanks && reader_.is_next("#")) {
        reader_.take_while(std::string::npos, [](char c) { return c != '\n'; });
      } else {
        return;
      }
    }
  }

  // Up to a closing parenthesis or the end.
  std::string alternatives(Options options) {
    reader_.enter();
    std::string out;
    for (skip(options); !reader_.is_end() && !reader_.is_next(")"); skip(options)) {
      if (reader_.take("|")) {
        out += '|';
        literals_.clear();
      } else if (take_options(options)) {
        // Options without a group: a(?i)b|c is a(?i:b|c).
        out += options.open() + alternatives(options) + ")";
      } else {
        out += quantified(options);
      }
    }
    reader_.leave();
    return out;
  }

  // (?imx-imx); else nothing is taken.
  bool take_options(Options& options) {
    const size_t begin = reader_.position();
    Options changed = options;
    if (reader_.take("(?") && end_of_options(changed) == ')') {
      options = changed;
      return true;
    }
    reader_.go_to(begin);
    return false;
  }

  // A parenthesis or a colon, which is taken as well; 0 where they are no options.
  char end_of_options(Options& options) {
    for (bool value = true; !reader_.is_end();) {
      const char c = reader_.take_char("");
      if (c == '-') {
        value = false;
      } else if (c == 'i') {
        options.letters = value ? Case::ignored : Case::counts;
      } else if (c == 'm') {
        options.dot_takes_newline = value;
      } else if (c == 'x') {
        options.skips_blanks = value;
      } else {
        return c == ')' || c == ':' ? c : '\0';
      }
    }
    return '\0';
  }

  std::string quantified(const Options& options) {
    Atom atom = one_atom(options);
    bool is_first = true, is_greedy = true;
    for (skip(options);; skip(options)) {
      const std::string quantifier = take_quantifier();
      if (quantifier.empty()) return atom.text;
      if (!atom.is_repeatable) regex_damaged("a quantifier behind an assertion");
      if (!is_greedy) regex_not_supported("a quantifier behind a lazy or possessive one");
      // One of a quantified expression: a{2,3}+ is (?:a{2,3})+.
      if (!is_first) atom.text = fmt::format("(?:{})", atom.text);
      atom.text += quantifier;
      is_first = false;
      is_greedy = quantifier.size() == 1 || quantifier.back() == '}';
      literals_.clear();
    }
  }

  std::string take_quantifier() {
    for (const char* repeats : {"*", "+", "?"}) {
      if (!reader_.take(repeats)) continue;
      for (const char* kind : {"?", "+"})
        if (reader_.take(kind)) return std::string(repeats) + kind;
      return repeats;
    }
    return take_interval();
  }

  // {n}, {n,}, {,n}, {n,m}; other braces are characters.
  std::string take_interval() {
    const size_t begin = reader_.position();
    const auto number = [&] { return std::string(reader_.take_while(9, is_ascii_digit)); };
    if (!reader_.take("{")) return "";
    const std::string low = number();
    const bool is_exact = !reader_.take(",");
    const std::string high = is_exact ? low : number();
    if (!reader_.take("}") || (low.empty() && high.empty())) {
      reader_.go_to(begin);
      return "";
    }
    if (is_exact) return fmt::format("{{{}}}", low);
    const std::string from = low.empty() ? "0" : low;
    if (!high.empty() && std::stoi(high) < std::stoi(from))
      regex_not_supported("a quantifier {}", reader_.since(begin));
    return fmt::format("{{{},{}}}{}", from, high, reader_.take("?") ? "?" : "");
  }

  Atom one_atom(const Options& options) {
    if (reader_.take("(")) return group(options);
    if (reader_.take("\\")) return escaped(options);
    if (reader_.take("^")) return {"(?m:^)", false};
    if (reader_.take("$")) return {"(?m:$)", false};
    if (!take_quantifier().empty()) regex_damaged("a quantifier that follows nothing");
    if (reader_.take("[")) return one_of(take_class(reader_, options.letters));
    if (!reader_.take(".")) return literal(reader_.take_character(), options);
    literals_.clear();
    return {options.dot_takes_newline ? "(?s:.)" : "."};
  }

  Atom one_of(const CharacterSet& set) {
    literals_.clear();
    return {set.bare_expression()};
  }

  Atom literal(int32_t code, const Options& options) {
    if (options.letters == Case::ignored) check_folds_alone(code);
    if (code < 0x20 || code == 0x7F) return {fmt::format("\\x{{{:x}}}", code)};
    constexpr std::string_view kMarks = "\\^$.[]|()?*+{}";
    std::string out;
    if (code < 0x80 && kMarks.find(static_cast<char>(code)) != kMarks.npos) out = "\\";
    append_utf8(out, code);
    return {out};
  }

  // Neighbouring letters match what they fold to together, as "ss" does U+00DF.
  void check_folds_alone(int32_t code) {
    literals_ += folded_case(code);
    for_each_folded_to_several([&](int32_t one, const std::u32string& several) {
      if (one == code || literals_.ends_with(several))
        regex_not_supported("(?i) of characters that U+{:04X} folds to", one);
    });
  }

  Atom group(const Options& options) {
    if (reader_.is_next("*")) regex_not_supported("a callout '(*'");
    Options inner = options;
    std::string open = "(";
    if (reader_.take("?")) {
      open += kind_of_group(inner);
    } else {
      ++n_groups_;
    }
    const std::string text = alternatives(inner);
    if (!reader_.take(")")) regex_damaged("missing closing parenthesis");
    const bool is_assertion = open.ends_with('=') || open.ends_with('!');
    return {open + text + ")", !is_assertion};
  }

  // What stands between the parenthesis and the group's expression.
  std::string kind_of_group(Options& options) {
    for (const char* same : {":", "=", "!", ">", "<=", "<!"})
      if (reader_.take(same)) return std::string("?") + same;
    if (reader_.take("<")) {
      has_names_ = true;
      return fmt::format("?<{}>", group_name());
    }
    const size_t begin = reader_.position();
    if (end_of_options(options) != ':') regex_not_supported("a group '(?{}'", reader_.since(begin));
    return options.open().substr(1);
  }

  std::string_view group_name() {
    const std::string_view name = reader_.take_until('>', "a group's name without an end");
    const bool is_word = std::all_of(name.begin(), name.end(), [](char c) {
      return is_ascii_letter(c) || is_ascii_digit(c) || c == '_';
    });
    if (name.empty() || is_ascii_digit(name[0]) || !is_word)
      regex_not_supported("a group's name '{}'", name);
    return name;
  }

  // Behind a backslash.
  Atom escaped(const Options& options) {
    for (const char* same : {"A", "z", "Z", "K"})
      if (reader_.take(same)) return {std::string("\\") + same, false};
    if (reader_.take("b")) return {boundary("!", "="), false};
    if (reader_.take("B")) return {boundary("=", "!"), false};
    const auto is_number = [](char c) { return c >= '1' && c <= '9'; };
    if (reader_.is_next("k<") || reader_.is_next_of(is_number)) return reference(options);
    for (const auto& [letter, expression] : kLetters)
      if (reader_.take(letter)) return {std::string(expression)};
    if (const auto found = take_escaped_set(reader_, SetPlace::bare)) return one_of(found->set);
    return literal(take_escaped_character(reader_), options);
  }

  // `behind_word` says what follows a character of a word: = one of a word, or ! none.
  static std::string boundary(std::string_view behind_word, std::string_view behind_other) {
    const std::string word = set_of_letter('w', SetPlace::bare).expression();
    return fmt::format("(?:(?<={0})(?{1}{0})|(?<!{0})(?{2}{0}))", word, behind_word, behind_other);
  }

  Atom reference(const Options& options) {
    if (options.letters == Case::ignored) regex_not_supported("a reference to a group under (?i)");
    literals_.clear();
    if (reader_.take("k<")) return {fmt::format("\\k<{}>", group_name())};
    const std::string_view digits = reader_.take_while(9, is_ascii_digit);
    if (digits.size() != 1) regex_not_supported("an escape '\\{}'", digits);
    max_reference_ = std::max(max_reference_, digits[0] - '0');
    return {fmt::format("\\g{{{}}}", digits)};
  }

  PatternReader reader_;
  int n_groups_ = 0, max_reference_ = 0;
  bool has_names_ = false;
  std::u32string literals_;  // those of (?i) behind each other, folded
};

}  // namespace

std::string pcre2_expression(std::string_view oniguruma) {
  return Translation(oniguruma).all();
}

}  // namespace octet
