// How far results are from those expected.
#pragma once

#include <cmath>

#include "property/fusion/run.h"

namespace octet::fusion {

// Relative to the largest value of each result, or to a hundredth of the largest of all where that
// is more (a window of one key has no gradient but v's); infinite where one is not finite.
inline double largest_error(const Tensors& got, const Tensors& want) {
  double error = 0, least = 0;
  for (const auto& [name, values] : want) {
    for (const double value : values) least = std::max(least, 0.01 * std::abs(value));
  }
  for (const auto& [name, values] : want) {
    double largest = least, off = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i]));
      const double distance = std::abs(got.at(name)[i] - values[i]);
      off = std::max(off, std::isfinite(distance) ? distance : HUGE_VAL);
    }
    error = std::max(error, off / largest);
  }
  return error;
}

// 8-bit significands of factors and results; f32 sums.
inline double attention_tolerance(Dtype dtype) {
  return dtype == Dtype::f32 ? 2e-5 : 0.02;
}

}  // namespace octet::fusion
