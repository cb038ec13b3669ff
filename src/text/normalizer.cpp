#include "text/normalizer.h"

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

// True if the first character of what a step makes comes from the first of its text.
bool keeps_first(const ReplaceText& replace, std::string_view text, MatchBudget&) {
  if (!text.starts_with(replace.from)) return true;
  return !replace.to.empty() && decode_utf8(text, 0).length == replace.from.size();
}

bool keeps_first(const ReplaceMatches& replace, std::string_view text, MatchBudget& budget) {
  size_t end = 0;
  bool is_seen = false;
  replace.from->for_each(text, budget, [&](const RegexMatch& match) {
    if (!is_seen && match.begin == 0) end = match.end;
    is_seen = true;
  });
  return end == 0 || (!replace.to.empty() && decode_utf8(text, 0).length == end);
}

bool keeps_first(const StripSpace& strip, std::string_view text, MatchBudget&) {
  return !strip.left || !is_white_space(decode_utf8(text, 0).code);
}

bool keeps_first(const MapCharacters& map, std::string_view text, MatchBudget&) {
  std::string mapped;
  append_by(*map.rule, text.substr(0, decode_utf8(text, 0).length), mapped);
  return !mapped.empty();
}

// Prepended text belongs to the first character, and so does what a table leaves of it.
template <typename Step>
bool keeps_first(const Step&, std::string_view, MatchBudget&) {
  return true;
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
  for (const NormalizerStep& normalizer : steps_) {
    is_first =
        is_first && !out.empty() &&
        std::visit([&](const auto& known) { return keeps_first(known, out, budget); }, normalizer);
    out = std::visit([&](const auto& known) { return step(known, std::move(out), limits); },
                     normalizer);
  }
  return out;
}

std::string Normalizer::apply(std::string_view text) const {
  MatchBudget budget = match_budget(text.size());
  return apply(text, budget);
}

}  // namespace octet
