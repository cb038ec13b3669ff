// Upper, lower and title case as Python's str has them: the full mappings of the Unicode Standard
// (SpecialCasing.txt without conditions), and the final sigma.
#include <utf8proc.h>

#include "text/jinja/characters.h"
#include "text/unicode.h"

namespace octet::jinja {
namespace {

// " X=YZ": the upper case of X is more than one character.
constexpr std::string_view kLongUpper =
    " \u00DF=SS \u0149=\u02BCN \u01F0=J\u030C \u0390=\u0399\u0308\u0301"
    " \u03B0=\u03A5\u0308\u0301 \u0587=\u0535\u0552 \u1E96=H\u0331 \u1E97=T\u0308"
    " \u1E98=W\u030A \u1E99=Y\u030A \u1E9A=A\u02BE \u1F50=\u03A5\u0313"
    " \u1F52=\u03A5\u0313\u0300 \u1F54=\u03A5\u0313\u0301 \u1F56=\u03A5\u0313\u0342"
    " \u1F80=\u1F08\u0399 \u1F81=\u1F09\u0399 \u1F82=\u1F0A\u0399 \u1F83=\u1F0B\u0399"
    " \u1F84=\u1F0C\u0399 \u1F85=\u1F0D\u0399 \u1F86=\u1F0E\u0399 \u1F87=\u1F0F\u0399"
    " \u1F88=\u1F08\u0399 \u1F89=\u1F09\u0399 \u1F8A=\u1F0A\u0399 \u1F8B=\u1F0B\u0399"
    " \u1F8C=\u1F0C\u0399 \u1F8D=\u1F0D\u0399 \u1F8E=\u1F0E\u0399 \u1F8F=\u1F0F\u0399"
    " \u1F90=\u1F28\u0399 \u1F91=\u1F29\u0399 \u1F92=\u1F2A\u0399 \u1F93=\u1F2B\u0399"
    " \u1F94=\u1F2C\u0399 \u1F95=\u1F2D\u0399 \u1F96=\u1F2E\u0399 \u1F97=\u1F2F\u0399"
    " \u1F98=\u1F28\u0399 \u1F99=\u1F29\u0399 \u1F9A=\u1F2A\u0399 \u1F9B=\u1F2B\u0399"
    " \u1F9C=\u1F2C\u0399 \u1F9D=\u1F2D\u0399 \u1F9E=\u1F2E\u0399 \u1F9F=\u1F2F\u0399"
    " \u1FA0=\u1F68\u0399 \u1FA1=\u1F69\u0399 \u1FA2=\u1F6A\u0399 \u1FA3=\u1F6B\u0399"
    " \u1FA4=\u1F6C\u0399 \u1FA5=\u1F6D\u0399 \u1FA6=\u1F6E\u0399 \u1FA7=\u1F6F\u0399"
    " \u1FA8=\u1F68\u0399 \u1FA9=\u1F69\u0399 \u1FAA=\u1F6A\u0399 \u1FAB=\u1F6B\u0399"
    " \u1FAC=\u1F6C\u0399 \u1FAD=\u1F6D\u0399 \u1FAE=\u1F6E\u0399 \u1FAF=\u1F6F\u0399"
    " \u1FB2=\u1FBA\u0399 \u1FB3=\u0391\u0399 \u1FB4=\u0386\u0399 \u1FB6=\u0391\u0342"
    " \u1FB7=\u0391\u0342\u0399 \u1FBC=\u0391\u0399 \u1FC2=\u1FCA\u0399 \u1FC3=\u0397\u0399"
    " \u1FC4=\u0389\u0399 \u1FC6=\u0397\u0342 \u1FC7=\u0397\u0342\u0399 \u1FCC=\u0397\u0399"
    " \u1FD2=\u0399\u0308\u0300 \u1FD3=\u0399\u0308\u0301 \u1FD6=\u0399\u0342"
    " \u1FD7=\u0399\u0308\u0342 \u1FE2=\u03A5\u0308\u0300 \u1FE3=\u03A5\u0308\u0301"
    " \u1FE4=\u03A1\u0313 \u1FE6=\u03A5\u0342 \u1FE7=\u03A5\u0308\u0342 \u1FF2=\u1FFA\u0399"
    " \u1FF3=\u03A9\u0399 \u1FF4=\u038F\u0399 \u1FF6=\u03A9\u0342 \u1FF7=\u03A9\u0342\u0399"
    " \u1FFC=\u03A9\u0399 \uFB00=FF \uFB01=FI \uFB02=FL \uFB03=FFI \uFB04=FFL \uFB05=ST"
    " \uFB06=ST \uFB13=\u0544\u0546 \uFB14=\u0544\u0535 \uFB15=\u0544\u053B"
    " \uFB16=\u054E\u0546 \uFB17=\u0544\u053D ";

std::string_view long_upper(std::string_view character) {
  const std::string key = " " + std::string(character) + "=";
  const size_t at = kLongUpper.find(key);
  if (at == std::string_view::npos) return {};
  const size_t begin = at + key.size();
  return kLongUpper.substr(begin, kLongUpper.find(' ', begin) - begin);
}

bool is_ascii_letter(int32_t code) {
  return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
}

bool is_cased(int32_t code) {
  return is_ascii_letter(code) ||
         (code >= 0x80 && (utf8proc_tolower(code) != code || utf8proc_toupper(code) != code ||
                           utf8proc_category(code) == UTF8PROC_CATEGORY_LL));
}

// What may stand between a sigma and the letters of its word.
bool is_case_ignorable(int32_t code) {
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return code == '\'' || code == '.' || code == ':' || code == 0xB7 || code == 0x2019;
  }
}

bool is_final_sigma(std::string_view text, size_t at) {
  size_t before = at;
  bool follows_letter = false;
  while (before > 0) {
    do --before;
    while (before > 0 && (text[before] & 0xC0) == 0x80);
    const int32_t code = decode_utf8(text, before).code;
    if (is_case_ignorable(code)) continue;
    follows_letter = is_cased(code);
    break;
  }
  if (!follows_letter) return false;
  for (size_t after = at + 2; after < text.size();) {
    const Character character = decode_utf8(text, after);
    if (!is_case_ignorable(character.code)) return !is_cased(character.code);
    after += character.length;
  }
  return true;
}

constexpr int32_t kSigma = 0x3A3, kFinalSigma = 0x3C2, kDottedI = 0x130;

void append_upper(std::string& out, std::string_view character, int32_t code) {
  if (code < 0x80) {
    out += code >= 'a' && code <= 'z' ? static_cast<char>(code - 32) : static_cast<char>(code);
    return;
  }
  const std::string_view special = long_upper(character);
  if (!special.empty()) {
    out += special;
  } else {
    append_utf8(out, utf8proc_toupper(code));
  }
}

void append_lower(std::string& out, std::string_view text, size_t at, int32_t code) {
  if (code < 0x80) {
    out += code >= 'A' && code <= 'Z' ? static_cast<char>(code + 32) : static_cast<char>(code);
  } else if (code == kDottedI) {
    out += "i\u0307";
  } else if (code == kSigma && is_final_sigma(text, at)) {
    append_utf8(out, kFinalSigma);
  } else {
    append_utf8(out, utf8proc_tolower(code));
  }
}

void append_title(std::string& out, std::string_view character, int32_t code) {
  const int32_t simple = code < 0x80 ? code : utf8proc_totitle(code);
  const std::string_view special = code < 0x80 ? std::string_view() : long_upper(character);
  if (special.empty() || (simple != code && code != 0xDF)) {
    if (simple != code) {
      append_utf8(out, simple);
    } else if (utf8proc_category(code) == UTF8PROC_CATEGORY_LT) {
      out += character;
    } else {
      append_upper(out, character, code);
    }
    return;
  }
  if (utf8proc_category(code) == UTF8PROC_CATEGORY_LT) {
    out += character;
    return;
  }
  const size_t first = decode_utf8(special, 0).length;
  out += special.substr(0, first);
  out += to_lower(special.substr(first));
}

// fn(character, where it begins, its code) for each.
template <typename Fn>
void for_each_character(std::string_view text, Fn fn) {
  for (size_t at = 0; at < text.size();) {
    const Character character = decode_utf8(text, at);
    fn(text.substr(at, character.length), at, character.code);
    at += character.length;
  }
}

}  // namespace

std::string to_upper(std::string_view text) {
  std::string out;
  for_each_character(text, [&](std::string_view character, size_t, int32_t code) {
    append_upper(out, character, code);
  });
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for_each_character(
      text, [&](std::string_view, size_t at, int32_t code) { append_lower(out, text, at, code); });
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool after_cased = false;
  for_each_character(text, [&](std::string_view character, size_t at, int32_t code) {
    if (after_cased) {
      append_lower(out, text, at, code);
    } else {
      append_title(out, character, code);
    }
    after_cased = is_cased(code);
  });
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for_each_character(text, [&](std::string_view character, size_t at, int32_t code) {
    if (at == 0) {
      append_title(out, character, code);
    } else {
      append_lower(out, text, at, code);
    }
  });
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for_each_character(text, [&](std::string_view character, size_t at, int32_t code) {
    if (utf8proc_category(code) == UTF8PROC_CATEGORY_LU) {
      append_lower(out, text, at, code);
    } else {
      append_upper(out, character, code);
    }
  });
  return out;
}

}  // namespace octet::jinja
