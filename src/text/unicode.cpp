#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <span>

#include "base/error.h"

namespace octet {
namespace {

constexpr int32_t kCodes = 0x110000;
// Beyond the ideographs there are neither letters nor numbers, nor anything that a normal form
// changes: marks of variants, tags, private use.
constexpr int32_t kInteresting = 0x40000;

bool is_within(int32_t code, int32_t first, int32_t last) {
  return first <= code && code <= last;
}

utf8proc_option_t options_of(NormalForm form) {
  const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool is_compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE |
                                        (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (is_compatible ? UTF8PROC_COMPAT : 0));
}

bool has_category(int32_t code, utf8proc_category_t first, utf8proc_category_t last) {
  return code >= 0 && is_within(utf8proc_category(code), first, last);
}

int combining_class(int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

// The longest decomposition of one code point is 18 code points (U+FDFA, compatibility).
constexpr size_t kLongestDecomposition = 32;

void append_decomposed(int32_t code, NormalForm form, std::vector<int32_t>& codes) {
  int32_t parts[kLongestDecomposition];
  int boundary = 0;
  const auto options =
      static_cast<utf8proc_option_t>((options_of(form) & ~UTF8PROC_COMPOSE) | UTF8PROC_DECOMPOSE);
  const utf8proc_ssize_t n =
      utf8proc_decompose_char(code, parts, kLongestDecomposition, options, &boundary);
  CHECK(n >= 0 && n <= static_cast<utf8proc_ssize_t>(kLongestDecomposition));
  codes.insert(codes.end(), parts, parts + n);
}

// Decomposed codes in canonical order, composed where the form says so.
void reorder_and_compose(std::vector<int32_t>& codes, NormalForm form) {
  for (auto it = codes.begin(); it != codes.end();) {
    if (combining_class(*it) == 0) {
      ++it;
      continue;
    }
    const auto end =
        std::find_if(it, codes.end(), [](int32_t code) { return combining_class(code) == 0; });
    std::stable_sort(it, end,
                     [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
    it = end;
  }
  if (form == NormalForm::nfd || form == NormalForm::nfkd) return;
  const utf8proc_ssize_t n = utf8proc_normalize_utf32(
      codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), options_of(form));
  CHECK(n >= 0);
  codes.resize(static_cast<size_t>(n));
}

}  // namespace

void append_utf8(std::string& text, int32_t code) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(code, bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
}

bool is_white_space(int32_t code) {
  if (code < 0x80) return code == ' ' || is_within(code, 9, 13);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || is_within(code, 0x2000, 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_word_character(int32_t code) {
  return has_category(code, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_NL) ||
         has_category(code, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PC) ||
         // Zero width joiners, and the circled and squared letters.
         is_within(code, 0x200C, 0x200D) || is_within(code, 0x24B6, 0x24E9) ||
         is_within(code, 0x1F130, 0x1F149) || is_within(code, 0x1F150, 0x1F169) ||
         is_within(code, 0x1F170, 0x1F189);
}

bool is_letter(int32_t code) {
  return has_category(code, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}

bool is_number(int32_t code) {
  return has_category(code, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool is_punctuation(int32_t code) {
  if (code < 0x80) {
    return is_within(code, '!', '/') || is_within(code, ':', '@') || is_within(code, '[', '`') ||
           is_within(code, '{', '~');
  }
  return has_category(code, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool is_mark(int32_t code) {
  return has_category(code, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

bool is_nonspacing_mark(int32_t code) {
  return has_category(code, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MN);
}

bool is_control_or_private(int32_t code) {
  return has_category(code, UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CF) ||
         has_category(code, UTF8PROC_CATEGORY_CO, UTF8PROC_CATEGORY_CO);
}

void append_lower_case(int32_t code, std::string& text) {
  constexpr int32_t kDottedI = 0x130;  // the one character whose lower case is two
  if (code == kDottedI) {
    text += "i\u0307";
  } else {
    append_utf8(text, utf8proc_tolower(code));
  }
}

size_t grapheme_length(std::string_view text) {
  const auto is_ascii = [&](size_t at) { return static_cast<unsigned char>(text[at]) < 0x80; };
  const bool is_alone = text.size() > 1 && is_ascii(0) && is_ascii(1) && text[0] != '\r';
  if (text.size() == 1 || is_alone) return 1;
  Character last = decode_utf8(text, 0);
  size_t end = last.length;
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    const Character next = decode_utf8(text, end);
    if (last.code < 0 || next.code < 0 ||
        utf8proc_grapheme_break_stateful(last.code, next.code, &state))
      break;
    end += next.length;
    last = next;
  }
  return end;
}

UnicodeNormalizer::UnicodeNormalizer(NormalForm form) : form_(form), is_inert_(kCodes, true) {
  std::vector<int32_t> codes;
  for (int32_t code = 0; code < kInteresting; ++code) {
    if (!utf8proc_codepoint_valid(code)) continue;
    codes.clear();
    append_decomposed(code, form, codes);
    // Codes behind the first of a decomposition may be composed with what stands before them.
    for (size_t i = 1; i < codes.size(); ++i) is_inert_[static_cast<size_t>(codes[i])] = false;
    if (combining_class(codes.front()) != 0) is_inert_[static_cast<size_t>(code)] = false;
    reorder_and_compose(codes, form);
    if (codes.size() != 1 || codes.front() != code || combining_class(code) != 0) {
      is_inert_[static_cast<size_t>(code)] = false;
    }
  }
  for (const auto& [first, last] : {std::pair(0x1161, 0x1175), std::pair(0x11A8, 0x11C2)}) {
    for (int32_t code = first; code <= last; ++code) is_inert_[static_cast<size_t>(code)] = false;
  }
}

void UnicodeNormalizer::append(std::string_view text, std::string& out) const {
  // A part that may change runs from the last inert character before it to the next one.
  size_t copied = 0, last_inert = 0;
  for (size_t at = 0; at < text.size();) {
    Character character = decode_utf8(text, at);
    CHECK(character.code != kInvalid);
    if (is_inert_[static_cast<size_t>(character.code)]) {
      last_inert = at;
      at += character.length;
      continue;
    }
    while (at < text.size()) {
      character = decode_utf8(text, at);
      CHECK(character.code != kInvalid);
      if (is_inert_[static_cast<size_t>(character.code)]) break;
      at += character.length;
    }
    out += text.substr(copied, last_inert - copied);
    append_part(text.substr(last_inert, at - last_inert), out);
    copied = last_inert = at;
  }
  out += text.substr(copied);
}

void UnicodeNormalizer::append_part(std::string_view text, std::string& out) const {
  std::vector<int32_t> codes;
  for_each_character(
      text, [&](std::string_view, int32_t code) { append_decomposed(code, form_, codes); });
  reorder_and_compose(codes, form_);
  for (const int32_t code : codes) append_utf8(out, code);
}

}  // namespace octet
