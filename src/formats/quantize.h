// Linear quantizers: x[r,c] ~ scale[g] * q[r,c], one scale for the tensor, a row, a 1xG group or a
// BxB block. Source: Xi et al., COAT, ICLR 2025 (groups); OCP MX 1.0 (E8M0 scales).
//
//   amax  = max |x| over the finite members of the group
//   scale = round_to_scale_type(amax * f32(1 / amax_target)), at least 2^-100; a BF16 scale is at
//           most 65535.9 / 65536 x 2^128 / amax_target cut to BF16, so that amax_target decodes
//   inv   = 1 / scale in f32;   q = encode(x * inv), saturating, with the *stored* scale
// A group of zeros has scale 1 and the codes of zero. NaN and Inf do not take part in amax and set
// the flag that quantize returns; they are encoded like any value (NaN stays NaN where the format
// has one, Inf saturates). Deterministic, bit-identical for any machine. Scalar reference; the fast
// paths equal it.
#pragma once

#include <cstdint>
#include <span>

#include "formats/codec.h"
#include "formats/granularity.h"

namespace octet {

struct MatrixShape {
  int64_t rows = 0, cols = 0;
  int64_t n_elems() const { return rows * cols; }
  bool operator==(const MatrixShape&) const = default;
};

// The grid of scales: [1, 1], [rows, 1], [rows, ceil(cols/G)], [ceil(rows/G), cols] or
// [ceil(rows/B), ceil(cols/B)]. Throws ErrorCode::invalid_argument for others.
MatrixShape scale_shape(const MatrixShape& shape, const Granularity& granularity);

struct Quantizer {
  Dtype format = Dtype::e4m3;
  Granularity granularity = {.kind = Granularity::Kind::tensor};
  Dtype scale_type = Dtype::f32;  // f32, bf16, or e8m0 (power_ceil or mx_floor only)
  ScaleRule rule = ScaleRule::linear;
  float amax_target = 448.0f;
};

// COAT's choices: the row's amax_target; scales are BF16 for 1xG groups and f32 otherwise.
Quantizer linear_quantizer(Dtype format, const Granularity& granularity);
// MX: groups 1x32 with E8M0 scales; `rule` is power_ceil (RCEIL) or mx_floor (FLOOR).
Quantizer mx_quantizer(Dtype format, ScaleRule rule = ScaleRule::power_ceil);

struct Amax {
  float value = 0.0f;
  bool nonfinite = false;  // a NaN or Inf was seen
};

OCTET_HOST_DEVICE constexpr Amax join(const Amax& a, const Amax& b) {
  return {a.value > b.value ? a.value : b.value, a.nonfinite || b.nonfinite};
}
OCTET_HOST_DEVICE constexpr Amax amax_of(float x) {
  return is_finite(x) ? Amax{float_of(bits_of(x) & kF32Magnitude), false} : Amax{0.0f, true};
}
Amax amax(std::span<const float> x);

// The stored scale of a group, as f32. Exact powers of two for power_ceil and mx_floor.
float scale_from_amax(const Quantizer& quantizer, float amax);

// x: [rows, cols] row-major; codes as x; scales as scale_shape, f32 holding values of scale_type.
// Returns true when x holds a NaN or Inf. Throws ErrorCode::invalid_argument when a size does not
// fit, the format is no 8-bit format, or scale_type and rule do not go together.
bool quantize(const Quantizer& quantizer, const MatrixShape& shape, std::span<const float> x,
              std::span<uint8_t> codes, std::span<float> scales);

// x = decode(codes) * scale, one rounding in f32. An E8M0 scale that is NaN makes its group NaN.
void dequantize(const Quantizer& quantizer, const MatrixShape& shape,
                std::span<const uint8_t> codes, std::span<const float> scales, std::span<float> x);

}  // namespace octet
