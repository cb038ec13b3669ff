// A card's epilogue of sums of products (tensor_sums.h) before it rounds them to y's type, in f32.
//   y     = alpha sum + c, by one fused multiply-add; alpha = scale_a scale_b, times a factor
//   y     = (alpha sum) + bias, rounded twice
//   y     = (scale_b sum) scale_a            with a scale for each row of a and of b
//   total = total + the scaled sum of 128 products that share their scales, in order
// An addend c that lies where y is stored is added otherwise: alpha sum is rounded to y's type,
// then its sum with c. Source: recorded products of an H100 and an H200 (tests/golden/sums). b is
// the factor that cuBLASLt calls A. Host and device.
#pragma once

#include <cmath>

#include "base/host_device.h"

namespace octet {

OCTET_HOST_DEVICE inline float scaled_sum(float alpha, float sum, float c) {
  return std::fma(alpha, sum, c);
}

OCTET_HOST_DEVICE inline float biased_sum(float alpha, float sum, float bias) {
  return alpha * sum + bias;
}

OCTET_HOST_DEVICE inline float scaled_by_rows(float sum, float scale_a, float scale_b) {
  return sum * scale_b * scale_a;
}

// Scales of 1 x 128 on both sides, or of 128 x 128 on one.
enum class BlockPair : unsigned char { lines, line_and_square };

OCTET_HOST_DEVICE inline float add_scaled_block(BlockPair pair, float total, float sum,
                                                float scale_a, float scale_b) {
  return pair == BlockPair::lines ? std::fma(sum * scale_a, scale_b, total)
                                  : std::fma(scale_a * scale_b, sum, total);
}

}  // namespace octet
