// Second moments that stand still: what a step takes from a number is less than half a place of it,
// and rounding to nearest gives the number back.
#pragma once

#include <fmt/format.h>

#include <string>

#include "optim/state_format.h"

namespace octet {

// Half a place of BF16, at the beginning of an octave; of 8-bit codes it is more. What a step takes
// is 1 - beta2.
inline constexpr double kHalfPlace = 0x1p-8;

// Warning, "" where nothing is worth one. `name`: of the format of v.
inline std::string standing_warning(std::string_view name, double beta2) {
  const StateFormat format = run_state_format_from_name(name);
  if (format.dtype == Dtype::f32 || format.stochastic || 1 - beta2 >= kHalfPlace) return "";
  const std::string_view plain = name.substr(0, name.find('+'));
  return fmt::format(
      "{} rounds to nearest: with beta2 = {} v falls {}; {}_sr{} falls as f32 does on average",
      name, beta2,
      is_quantized(format.dtype) ? "as the largest of its group does, not by itself" : "not at all",
      plain, name.substr(plain.size()));
}

}  // namespace octet
