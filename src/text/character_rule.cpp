#include "text/character_rule.h"

#include <algorithm>
#include <iterator>

#include "text/unicode.h"

namespace octet {
namespace {

constexpr std::array<int8_t, 128> unchanged() {
  std::array<int8_t, 128> ascii = {};
  for (size_t i = 0; i < ascii.size(); ++i) ascii[i] = static_cast<int8_t>(i);
  return ascii;
}

constexpr std::array<int8_t, 128> cleaned() {
  std::array<int8_t, 128> ascii = unchanged();
  for (size_t i = 0; i < 32; ++i) ascii[i] = CharacterRule::kDropped;
  for (const char space : {'\t', '\n', '\r'}) ascii[static_cast<size_t>(space)] = ' ';
  ascii[127] = CharacterRule::kDropped;
  return ascii;
}

constexpr std::array<int8_t, 128> nmt() {
  std::array<int8_t, 128> ascii = unchanged();
  for (size_t i = 1; i < 32; ++i) ascii[i] = CharacterRule::kDropped;
  for (const char space : {'\t', '\n', '\f', '\r'}) ascii[static_cast<size_t>(space)] = ' ';
  ascii[127] = CharacterRule::kDropped;
  return ascii;
}

constexpr std::array<int8_t, 128> lower() {
  std::array<int8_t, 128> ascii = unchanged();
  for (size_t i = 'A'; i <= 'Z'; ++i) ascii[i] = static_cast<int8_t>(i - 'A' + 'a');
  return ascii;
}

void append_clean(int32_t code, std::string& out) {
  constexpr int32_t kReplacement = 0xFFFD;
  if (code == kReplacement || is_control_or_private(code)) return;
  append_utf8(out, is_white_space(code) ? ' ' : code);
}

void append_nmt(int32_t code, std::string& out) {
  static constexpr int32_t kDropped[] = {0x8F, 0x9F};
  static constexpr int32_t kSpaces[] = {0x1680, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F,
                                        0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD};
  const auto is_one_of = [code](const auto& list) {
    return std::find(std::begin(list), std::end(list), code) != std::end(list);
  };
  if (!is_one_of(kDropped)) append_utf8(out, is_one_of(kSpaces) ? ' ' : code);
}

// The blocks that BERT's code lists.
bool is_ideograph(int32_t code) {
  struct Block {
    int32_t first, last;
  };
  static constexpr Block kBlocks[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                      {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                                      {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kBlocks), std::end(kBlocks),
                     [&](const Block& block) { return block.first <= code && code <= block.last; });
}

void append_spaced(int32_t code, std::string& out) {
  if (!is_ideograph(code)) return append_utf8(out, code);
  out += ' ';
  append_utf8(out, code);
  out += ' ';
}

void append_no_mark(int32_t code, std::string& out) {
  if (!is_mark(code)) append_utf8(out, code);
}

void append_no_nonspacing_mark(int32_t code, std::string& out) {
  if (!is_nonspacing_mark(code)) append_utf8(out, code);
}

void append_ascii(const CharacterRule& rule, std::string_view text, std::string& out) {
  const size_t n_before = out.size();
  out.resize(n_before + text.size());
  char* to = out.data() + n_before;
  for (const char c : text) {
    const int8_t becomes = rule.ascii[static_cast<size_t>(c)];
    *to = static_cast<char>(becomes);
    to += becomes != CharacterRule::kDropped ? 1 : 0;
  }
  out.resize(static_cast<size_t>(to - out.data()));
}

}  // namespace

const CharacterRule kCleanText = {cleaned(), append_clean};
const CharacterRule kSpaceIdeographs = {unchanged(), append_spaced};
const CharacterRule kNmt = {nmt(), append_nmt};
const CharacterRule kDropMarks = {unchanged(), append_no_mark};
const CharacterRule kDropNonspacingMarks = {unchanged(), append_no_nonspacing_mark};
const CharacterRule kLowercase = {lower(), append_lower_case};

void append_by(const CharacterRule& rule, std::string_view text, std::string& out) {
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && static_cast<unsigned char>(text[end]) < 0x80) ++end;
    append_ascii(rule, text.substr(at, end - at), out);
    at = end;
    if (at == text.size()) break;
    const Character character = decode_utf8(text, at);
    if (character.code == kInvalid) {
      out += text[at];
    } else {
      rule.append(character.code, out);
    }
    at += character.length;
  }
}

}  // namespace octet
