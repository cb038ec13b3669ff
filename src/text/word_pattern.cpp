#include "text/word_pattern.h"

#include <algorithm>

#include "base/error.h"

namespace octet {
namespace {

struct Spelling {
  WordPattern pattern;
  std::string_view text;
};

constexpr Spelling kSpellings[] = {
    {WordPattern::gpt2, "gpt2"},
    {WordPattern::cl100k, "cl100k"},
    {WordPattern::cl100k, "llama3"},
    {WordPattern::qwen, "qwen"},
    {WordPattern::gpt2,
     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {WordPattern::gpt2,
     R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {WordPattern::cl100k,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {WordPattern::cl100k,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {WordPattern::cl100k,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*)"
     R"(|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {WordPattern::qwen,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

bool is_space(CharClass type) {
  return type == CharClass::space || type == CharClass::newline;
}

enum class Case { exact, ignored };

// The end of 's, 't, 're, 've, 'm, 'll, 'd where text[at] is the apostrophe; at where it is none.
size_t end_of_contraction(std::string_view text, size_t at, Case letters) {
  const auto letter = [&](size_t i) -> char {
    if (at + i >= text.size()) return '\0';
    const char c = text[at + i];
    return letters == Case::ignored && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = letter(1), second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  const bool is_pair = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                       (first == 'l' && second == 'l');
  if (is_pair) return at + 3;
  // The long s, which is an s where case is ignored.
  return letters == Case::ignored && text.substr(at + 1, 2) == "\u017F" ? at + 3 : at;
}

}  // namespace

std::optional<WordPattern> known_pattern(std::string_view text) {
  for (const Spelling& spelling : kSpellings) {
    if (spelling.text == text) return spelling.pattern;
  }
  return std::nullopt;
}

WordScanner::WordScanner(WordPattern pattern)
    : pattern_(pattern), most_digits_(pattern == WordPattern::qwen ? 1 : 3) {}

size_t WordScanner::end_of_word(std::string_view text, size_t at) const {
  CHECK(at < text.size());
  return pattern_ == WordPattern::gpt2 ? end_gpt2(text, at) : end_cl100k(text, at);
}

inline WordScanner::Next WordScanner::next(std::string_view text, size_t at) const {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {classes_.of(byte), at + 1};
  const Character character = decode_utf8(text, at);
  return {classes_.of(character.code), at + character.length};
}

size_t WordScanner::end_of_run(std::string_view text, size_t at, CharClass type) const {
  while (at < text.size()) {
    const Next character = next(text, at);
    if (character.type != type) break;
    at = character.end;
  }
  return at;
}

// \s+(?!\S)|\s+: all white space but the last character where something else follows it.
size_t WordScanner::end_of_space(std::string_view text, size_t at) const {
  size_t end = at, last = at;
  while (end < text.size()) {
    const Next character = next(text, end);
    if (!is_space(character.type)) break;
    last = end;
    end = character.end;
  }
  return end == text.size() || last == at ? end : last;
}

size_t WordScanner::end_gpt2(std::string_view text, size_t at) const {
  if (text[at] == '\'') {
    if (const size_t end = end_of_contraction(text, at, Case::exact); end > at) return end;
  }
  Next character = next(text, at);
  if (text[at] == ' ' && at + 1 < text.size()) character = next(text, at + 1);
  if (is_space(character.type)) return end_of_space(text, at);
  return end_of_run(text, character.end, character.type);
}

size_t WordScanner::end_cl100k(std::string_view text, size_t at) const {
  if (text[at] == '\'') {
    if (const size_t end = end_of_contraction(text, at, Case::ignored); end > at) return end;
  }
  const Next first = next(text, at);
  if (first.type == CharClass::letter) return end_of_run(text, first.end, CharClass::letter);
  if (first.type == CharClass::number) {
    size_t end = first.end;
    for (size_t i = 1; i < most_digits_ && end < text.size(); ++i) {
      const Next digit = next(text, end);
      if (digit.type != CharClass::number) break;
      end = digit.end;
    }
    return end;
  }
  const Next second =
      first.end < text.size() ? next(text, first.end) : Next{CharClass::space, first.end};
  if (first.type != CharClass::newline && second.type == CharClass::letter) {
    return end_of_run(text, second.end, CharClass::letter);
  }
  const bool is_symbol =
      first.type == CharClass::other || (text[at] == ' ' && second.type == CharClass::other);
  if (is_symbol) {
    const size_t end = end_of_run(text, first.end, CharClass::other);
    return end_of_run(text, end, CharClass::newline);
  }
  // \s*[\r\n]+ reaches to the last line end of the white space.
  size_t last_newline = at;
  for (size_t end = at; end < text.size();) {
    const Next character = next(text, end);
    if (!is_space(character.type)) break;
    end = character.end;
    if (character.type == CharClass::newline) last_newline = end;
  }
  return last_newline > at ? last_newline : end_of_space(text, at);
}

}  // namespace octet
