#include <cmath>

#include "text/jinja/characters.h"
#include "text/jinja/format.h"
#include "text/jinja/print.h"
#include "text/jinja/text_helpers.h"

namespace octet::jinja {
namespace {

std::string with_groups(std::string_view digits, const FormatSpec& spec) {
  if (spec.grouping == 0) return std::string(digits);
  const bool is_decimal = std::string_view("xXob").find(spec.type) == std::string_view::npos;
  const size_t group = is_decimal ? 3 : 4;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % group == 0) out += spec.grouping;
    out += digits[i];
  }
  return out;
}

std::string sign_of(bool is_negative, const FormatSpec& spec) {
  if (is_negative) return "-";
  return spec.sign == '+' || spec.sign == ' ' ? std::string(1, spec.sign) : "";
}

// Fills between the sign and the digits where '=' asks for it.
std::string align_number(Runtime& runtime, const std::string& sign, const std::string& digits,
                         const FormatSpec& spec) {
  if (spec.align != '=') return pad_formatted(runtime, sign + digits, spec, '>');
  const int64_t width = spec.width - static_cast<int64_t>(sign.size());
  return sign + pad(runtime, digits, width, Align::right, spec.fill);
}

}  // namespace

std::string pad_formatted(Runtime& runtime, std::string_view text, const FormatSpec& spec,
                          char default_align) {
  const char align = spec.align == 0 ? default_align : spec.align;
  if (align != '^') {
    return pad(runtime, text, spec.width, align == '<' ? Align::left : Align::right, spec.fill);
  }
  const int64_t n = count_characters(text);
  if (n >= spec.width) return std::string(text);
  const int64_t left = (spec.width - n) / 2;  // unlike str.center
  return pad(runtime, pad(runtime, text, n + left, Align::right, spec.fill), spec.width,
             Align::left, spec.fill);
}

std::string format_integer(Runtime& runtime, int64_t value, const FormatSpec& spec) {
  const uint64_t magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string digits, prefix;
  switch (spec.type) {
    case 'x':
      digits = fmt::format("{:x}", magnitude);
      prefix = "0x";
      break;
    case 'X':
      digits = fmt::format("{:X}", magnitude);
      prefix = "0X";
      break;
    case 'o':
      digits = fmt::format("{:o}", magnitude);
      prefix = "0o";
      break;
    case 'b':
      digits = fmt::format("{:b}", magnitude);
      prefix = "0b";
      break;
    default:
      digits = std::to_string(magnitude);
  }
  if (spec.precision > static_cast<int64_t>(digits.size())) {  // of "%.5d"
    digits = pad(runtime, digits, spec.precision, Align::right, "0");
  }
  const std::string sign = sign_of(value < 0, spec) + (spec.is_alternate ? prefix : "");
  return align_number(runtime, sign, with_groups(digits, spec), spec);
}

std::string format_real(Runtime& runtime, double value, const FormatSpec& spec) {
  const bool is_negative = std::signbit(value);
  const double magnitude = std::fabs(value);
  if (spec.precision > 1000) runtime.fail("expected a precision of at most 1000");
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  std::string digits;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
    if (spec.type == 'E' || spec.type == 'F' || spec.type == 'G') digits = to_upper(digits);
    return align_number(runtime, sign_of(is_negative && !std::isnan(value), spec), digits, spec);
  }
  switch (spec.type) {
    case 'e':
      digits = spec.is_alternate ? fmt::format("{:#.{}e}", magnitude, precision)
                                 : fmt::format("{:.{}e}", magnitude, precision);
      break;
    case 'E':
      digits = fmt::format("{:.{}E}", magnitude, precision);
      break;
    case 'f':
    case 'F':
      digits = fmt::format("{:.{}f}", magnitude, precision);
      break;
    case '%':
      digits = fmt::format("{:.{}f}", magnitude * 100, precision) + "%";
      break;
    case 'G':
      digits = fmt::format("{:.{}G}", magnitude, std::max(precision, 1));
      break;
    case 0:
      if (spec.precision < 0) {
        digits = float_repr(magnitude);
        break;
      }
      [[fallthrough]];
    default:
      digits = spec.is_alternate ? fmt::format("{:#.{}g}", magnitude, std::max(precision, 1))
                                 : fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
      if (spec.type == 0 && digits.find_first_not_of("0123456789") == std::string::npos) {
        digits += ".0";
      }
  }
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  digits = with_groups(std::string_view(digits).substr(0, whole), spec) + digits.substr(whole);
  return align_number(runtime, sign_of(is_negative, spec), digits, spec);
}

}  // namespace octet::jinja
