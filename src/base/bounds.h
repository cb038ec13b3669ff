// The range of a number that a user may give.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>

namespace octet {

struct Bounds {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;  // the bound itself is not allowed
  bool high_open = false;
};

// True if a number is finite and lies within the bounds.
inline bool is_within(const Bounds& bounds, double value) {
  const bool above = bounds.low_open ? value > bounds.low : value >= bounds.low;
  const bool below = bounds.high_open ? value < bounds.high : value <= bounds.high;
  return above && below && std::isfinite(value);
}

// In words behind what the number is: " >= 1", " > 0", " in [0, 1)"; empty without bounds.
inline std::string bounds_text(const Bounds& bounds) {
  const bool has_low = bounds.low > -std::numeric_limits<double>::infinity();
  const bool has_high = bounds.high < std::numeric_limits<double>::infinity();
  if (has_low && has_high) {
    return fmt::format(" in {}{}, {}{}", bounds.low_open ? "(" : "[", bounds.low, bounds.high,
                       bounds.high_open ? ")" : "]");
  }
  if (has_low) return fmt::format(" {} {}", bounds.low_open ? ">" : ">=", bounds.low);
  if (has_high) return fmt::format(" {} {}", bounds.high_open ? "<" : "<=", bounds.high);
  return "";
}

}  // namespace octet
