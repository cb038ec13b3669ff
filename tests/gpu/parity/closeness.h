// How close a kernel of the GPU comes to the reference, by op and type.
#pragma once

#include <cmath>

#include "train/prove_kernels.h"

namespace octet::fusion {

// Relative to the largest value of the result: sums of tens of f32 terms, or bf16 factors.
inline double floor_of(const Graph& graph) {
  for (const GraphInput& input : graph.inputs) {
    const Dtype dtype = graph.type(input.value).dtype;
    if (dtype == Dtype::bf16 || dtype == Dtype::fp16) return 4e-3;
  }
  return 2e-5;
}

inline double bound_of(Closeness close, Dtype dtype, double value, double floor) {
  if (is_quantized(dtype)) return 0.26 * std::abs(value) + 0x1p-9;  // one step of the code
  const bool is_short = dtype == Dtype::bf16 || dtype == Dtype::fp16;
  if (close == Closeness::one_code && !is_short) return floor;
  return floor + (is_short ? 0x1p-7 * std::abs(value) : 1e-5 * std::abs(value));
}

}  // namespace octet::fusion
