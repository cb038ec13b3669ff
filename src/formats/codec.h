// Encode, decode and the derived numbers of every format: the one header to include.
//
//   decode<D>(code), encode<D>(x, rounding, options)    D fixed at compile time; host and device,
//   no throw decode(d, code), encode(d, x, rounding, options)    d known at run time; host, checked
//   visit_format(d, f)                                  calls f.template operator()<D>()
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "formats/bf16.h"
#include "formats/decode.h"
#include "formats/encode.h"
#include "formats/table.h"

namespace octet {

// Calls f.template operator()<D>() for the format `dtype`, a row of the table; throws
// ErrorCode::invalid_argument when it is not one.
template <size_t Row = 0, typename F>
auto visit_format(Dtype dtype, F&& f) {
  if (dtype == kFormats[Row].dtype) return f.template operator()<kFormats[Row].dtype>();
  if constexpr (Row + 1 < kFormatCount) return visit_format<Row + 1>(dtype, std::forward<F>(f));
  throw Error(ErrorCode::invalid_argument, "[formats] expected a number format, got {}",
              dtype_name(dtype));
}

// Word that holds a code of a format.
template <Dtype D>
using CodeWord = std::conditional_t<dtype_bytes(D) == 2, uint16_t, uint8_t>;

inline float decode(Dtype dtype, uint32_t code) {
  return visit_format(dtype, [&]<Dtype D>() { return decode<D>(code); });
}

// Throws ErrorCode::invalid_argument when the format does not define the rounding.
void check_rounding(Dtype dtype, Rounding rounding);

inline uint32_t encode(Dtype dtype, float x, Rounding rounding = Rounding::near,
                       const EncodeOptions& options = {}) {
  check_rounding(dtype, rounding);
  return visit_format(dtype, [&]<Dtype D>() { return encode<D>(x, rounding, options); });
}

// A row whose dtype is known only at run time; throws ErrorCode::invalid_argument when it is no
// format.
inline FormatRow find_format(Dtype dtype) {
  return visit_format(dtype, []<Dtype D>() { return kFormatRow<D>; });
}

constexpr int format_bits(const FormatRow& row) {
  return 8 * dtype_bytes(row.dtype);
}
inline float max_finite(Dtype dtype) {
  return decode(dtype, find_format(dtype).max_code);
}
inline float min_positive(Dtype dtype) {
  return decode(dtype, find_format(dtype).min_code);
}

// Smallest value with the full width that its exponent allows: IEEE 2^(1-bias); HiF8 2^-15;
// otherwise min_positive.
inline float min_normal(Dtype dtype) {
  const FormatRow row = find_format(dtype);
  if (row.rule == DecodeRule::ieee) return power_of_two(1 - row.bias);
  return row.rule == DecodeRule::hif8 ? power_of_two(-15) : min_positive(dtype);
}

}  // namespace octet
