#include "formats/codec.h"

#include <string>

namespace octet {

void check_rounding(Dtype dtype, Rounding rounding) {
  if (rounding_supported(dtype, rounding)) return;
  std::string names;
  for (const std::string_view name : kRoundingNames) {
    if (!rounding_supported(dtype, *rounding_from_name(name))) continue;
    names += names.empty() ? "" : ", ";
    names += name;
  }
  throw Error(ErrorCode::invalid_argument, "[formats] expected a rounding of {} ({}), got {}",
              dtype_name(dtype), names.empty() ? "not a number format" : names,
              rounding_name(rounding));
}

}  // namespace octet
