#include "formats/codec.h"

#include <string>

#include "formats/names.h"

namespace octet {

void check_rounding(Dtype dtype, Rounding rounding) {
  if (rounding_supported(dtype, rounding)) return;
  const std::string names = roundings_text(dtype, ", ");
  throw Error(ErrorCode::invalid_argument, "[formats] expected a rounding of {} ({}), got {}",
              dtype_name(dtype), names.empty() ? "not a number format" : names,
              rounding_name(rounding));
}

}  // namespace octet
