#include "text/normalizer.h"

#include "base/error.h"

namespace octet {
namespace {

std::string step(const PrependText& prepend, std::string&& text) {
  return text.empty() ? text : prepend.text + text;
}

std::string step(const ReplaceText& replace, std::string&& text) {
  std::string out;
  for (size_t at = 0;;) {
    const size_t found = text.find(replace.from, at);
    out.append(text, at, found - at);
    if (found == text.npos) return out;
    out += replace.to;
    at = found + replace.from.size();
  }
}

std::string step(const ReplaceMatches& replace, std::string&& text) {
  std::string out;
  size_t copied = 0;
  for (size_t at = 0; at <= text.size();) {
    const Match match = replace.from->find(text, at);
    if (!match.found()) break;
    out.append(text, copied, match.begin - copied);
    out += replace.to;
    copied = match.end;
    at = match.end > match.begin ? match.end : match.end + 1;
  }
  return out + text.substr(std::min(copied, text.size()));
}

std::string step(const StripSpace& strip, std::string&& text) {
  size_t begin = 0, end = text.size();
  while (strip.left && begin < end) {
    const Character character = decode_utf8(text, begin);
    if (!is_white_space(character.code)) break;
    begin += character.length;
  }
  while (strip.right && begin < end) {
    size_t last = end - 1;
    while (last > begin && (text[last] & 0xC0) == 0x80) --last;
    if (!is_white_space(decode_utf8(text, last).code)) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

bool is_all_ascii(std::string_view text) {
  unsigned char bits = 0;
  for (const char c : text) bits |= static_cast<unsigned char>(c);
  return bits < 0x80;
}

std::string step(const std::shared_ptr<const UnicodeNormalizer>& form, std::string&& text) {
  if (is_all_ascii(text)) return text;
  const size_t invalid = find_invalid_utf8(text);
  if (invalid != text.npos) {
    throw Error(ErrorCode::bad_data,
                "[tokenizer] expected UTF-8, which this tokenizer normalizes, got byte 0x{:02X} at "
                "{}",
                static_cast<unsigned char>(text[invalid]), invalid);
  }
  std::string out;
  out.reserve(text.size());
  form->append(text, out);
  return out;
}

}  // namespace

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const NormalizerStep& normalizer : steps_) {
    out = std::visit([&](const auto& known) { return step(known, std::move(out)); }, normalizer);
  }
  return out;
}

}  // namespace octet
