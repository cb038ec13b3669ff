#include "formats/names.h"

#include <fmt/format.h>

namespace octet {

Dtype format_from_name(std::string_view name) {
  const auto dtype = dtype_from_name(name);
  if (dtype && is_format(*dtype)) return *dtype;
  std::string known;
  for (const FormatRow& row : kFormats) known += fmt::format(" {}", dtype_name(row.dtype));
  throw Error(ErrorCode::invalid_argument, "[formats] expected a number format,{}, got {}", known,
              name);
}

std::string roundings_text(Dtype format, std::string_view separator) {
  std::string text;
  for (const std::string_view name : kRoundingNames) {
    if (!rounding_supported(format, *rounding_from_name(name))) continue;
    if (!text.empty()) text += separator;
    text += name;
  }
  return text;
}

Rounding rounding_of_format(Dtype format, std::string_view name) {
  const auto rounding = rounding_from_name(name);
  if (!rounding) {
    throw Error(ErrorCode::invalid_argument, "[formats] --rounding: expected one of {}, got {}",
                roundings_text(format), name);
  }
  check_rounding(format, *rounding);
  return *rounding;
}

}  // namespace octet
