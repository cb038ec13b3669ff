// How far results are from numbers made elsewhere.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace octet::golden {

// The largest difference beside the largest expected magnitude; infinity where a number is missing
// or not finite, and the difference itself where zeros are expected.
inline double distance(const std::vector<double>& got, const std::vector<double>& expected) {
  if (got.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double largest = 0, difference = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(expected[i]));
    difference = std::max(difference, std::abs(got[i] - expected[i]));
  }
  return largest > 0 ? difference / largest : difference;
}

}  // namespace octet::golden
