#include "text/normalizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/byte_alphabet.h"

namespace octet {
namespace {

// Limits of the steps of one text.
struct Limits {
  size_t n_bytes;
  MatchBudget& matching;
};

void append(std::string& out, std::string_view text, const Limits& limits) {
  if (out.size() + text.size() > limits.n_bytes) {
    throw Error(ErrorCode::invalid_argument,
                "expected replacements that make at most {} bytes of a text, got more",
                limits.n_bytes);
  }
  out += text;
}

std::string step(const PrependText& prepend, std::string&& text, const Limits& limits) {
  if (text.empty()) return text;
  std::string out;
  append(out, prepend.text, limits);
  append(out, text, limits);
  return out;
}

std::string step(const ReplaceText& replace, std::string&& text, const Limits& limits) {
  std::string out;
  const std::string_view from(text);
  for (size_t at = 0;;) {
    const size_t found = from.find(replace.from, at);
    append(out, from.substr(at, found - at), limits);
    if (found == from.npos) return out;
    append(out, replace.to, limits);
    at = found + replace.from.size();
  }
}

std::string step(const ReplaceMatches& replace, std::string&& text, const Limits& limits) {
  if (text.empty()) return text;  // nothing matches in nothing
  std::string out;
  size_t copied = 0;
  const std::string_view from(text);
  replace.from->for_each(text, limits.matching, [&](const RegexMatch& match) {
    append(out, from.substr(copied, match.begin - copied), limits);
    append(out, replace.to, limits);
    copied = match.end;
  });
  append(out, from.substr(copied), limits);
  return out;
}

std::string step(const StripSpace& strip, std::string&& text, const Limits&) {
  std::string_view rest = text;
  const auto is_space = [](std::string_view, int32_t code) { return is_white_space(code); };
  if (strip.left) rest = strip_while(rest, Side::left, is_space);
  if (strip.right) rest = strip_while(rest, Side::right, is_space);
  return std::string(rest);
}

bool is_all_ascii(std::string_view text) {
  unsigned char bits = 0;
  for (const char c : text) bits |= static_cast<unsigned char>(c);
  return bits < 0x80;
}

std::string step(const MapCharacters& map, std::string&& text, const Limits& limits) {
  if (!is_all_ascii(text)) check_utf8(text);
  std::string out, mapped;
  mapped.reserve(text.size());
  append_by(*map.rule, text, mapped);
  append(out, mapped, limits);
  return out;
}

std::string step(const SpellBytes&, std::string&& text, const Limits& limits) {
  static const ByteAlphabet kAlphabet;
  std::string out;
  append(out, kAlphabet.spelled(text), limits);
  return out;
}

std::string step(const std::shared_ptr<const CharacterMap>& map, std::string&& text,
                 const Limits& limits) {
  check_utf8(text);
  std::string out, mapped;
  map->append(text, mapped);
  append(out, mapped, limits);
  return out;
}

std::string step(const std::shared_ptr<const UnicodeNormalizer>& form, std::string&& text,
                 const Limits& limits) {
  if (is_all_ascii(text)) return text;
  check_utf8(text);
  std::string out, normal;
  normal.reserve(text.size());
  form->append(text, normal);
  append(out, normal, limits);
  return out;
}

// How many bytes of what a step makes of `text` come from the text's first character, as its first
// n_first bytes do. As the tokenizers package aligns them: what is put in belongs to the last
// character that it replaces, or to the one before it.
struct Matches {
  size_t n_first, copied = 0, n = 0;

  void add(size_t begin, size_t end, size_t n_put_in) {
    n += std::min(begin, n_first) - std::min(copied, n_first);
    if (end == 0 || end <= n_first) n += n_put_in;
    copied = end;
  }
  size_t all() const { return n + n_first - std::min(copied, n_first); }
};

size_t first_bytes(const ReplaceText& replace, const std::string& text, size_t n_first,
                   const Limits&) {
  Matches matches{n_first};
  for (size_t at = text.find(replace.from); at != text.npos && at <= n_first;
       at = text.find(replace.from, at + replace.from.size()))
    matches.add(at, at + replace.from.size(), replace.to.size());
  return matches.all();
}

size_t first_bytes(const ReplaceMatches& replace, const std::string& text, size_t n_first,
                   const Limits& limits) {
  Matches matches{n_first};
  replace.from->for_each(text, limits.matching, [&](const RegexMatch& match) {
    matches.add(match.begin, match.end, replace.to.size());
  });
  return matches.all();
}

size_t first_bytes(const StripSpace& strip, const std::string& text, size_t n_first,
                   const Limits&) {
  if (!strip.left) return n_first;
  const auto is_space = [](std::string_view, int32_t code) { return is_white_space(code); };
  const size_t n = text.size() - strip_while(text, Side::left, is_space).size();
  return n_first - std::min(n, n_first);
}

size_t first_bytes(const PrependText& prepend, const std::string&, size_t n_first, const Limits&) {
  return n_first == 0 ? 0 : prepend.text.size() + n_first;
}

size_t first_bytes(const std::shared_ptr<const CharacterMap>&, const std::string&, size_t n_first,
                   const Limits&) {
  return n_first;  // also where the character goes: what follows takes its place
}

// Steps that go from character to character.
template <typename Step>
size_t first_bytes(const Step& known, const std::string& text, size_t n_first,
                   const Limits& limits) {
  return step(known, text.substr(0, n_first), limits).size();
}

}  // namespace

void check_utf8(std::string_view text) {
  const size_t invalid = find_invalid_utf8(text);
  if (invalid == text.npos) return;
  throw Error(ErrorCode::bad_data,
              "[tokenizer] expected UTF-8, which this tokenizer normalizes, got byte 0x{:02X} at "
              "{}",
              static_cast<unsigned char>(text[invalid]), invalid);
}

void Normalizer::add(NormalizerStep step) {
  if (steps_.size() == limits_.max_steps) {
    throw Error(ErrorCode::invalid_argument, "expected at most {} normalizers, got more",
                limits_.max_steps);
  }
  steps_.push_back(std::move(step));
}

std::string Normalizer::apply(std::string_view text, MatchBudget& budget) const {
  bool is_first = false;
  return apply(text, budget, is_first);
}

std::string Normalizer::apply(std::string_view text, MatchBudget& budget, bool& is_first) const {
  const Limits limits{limits_.max_growth * text.size() + limits_.growth_allowance, budget};
  std::string out(text);
  const bool counts = is_first && !text.empty();
  size_t n_first = counts ? decode_utf8(text, 0).length : 0;
  for (const NormalizerStep& normalizer : steps_) {
    const auto count = [&](const auto& known) { return first_bytes(known, out, n_first, limits); };
    if (counts) n_first = std::visit(count, normalizer);
    out = std::visit([&](const auto& known) { return step(known, std::move(out), limits); },
                     normalizer);
  }
  is_first = n_first > 0;
  return out;
}

std::string Normalizer::apply(std::string_view text) const {
  MatchBudget budget = match_budget(text.size());
  return apply(text, budget);
}

}  // namespace octet
