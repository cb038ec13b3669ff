// SwiGLU's gate and GELU's tanh form with their slopes, with the same bits on every machine
// (math/exact_functions.h): in f32, each operation as it is written.
#pragma once

#include "math/exact_functions.h"

namespace octet {

// gate logistic(gate) up
OCTET_HOST_DEVICE inline float gated_silu(float gate, float up) {
  return gate * logistic_exact(gate) * up;
}

struct GatedGrad {
  float gate, up;
};
// With s = logistic(gate): silu' = s + gate s (1 - s).
OCTET_HOST_DEVICE inline GatedGrad gated_grad(float dy, float gate, float up) {
  const float s = logistic_exact(gate), silu = gate * s;
  return {dy * up * fmaf(silu, 1.0f - s, s), dy * silu};
}

namespace detail {
inline constexpr float kTwoTanhFactor = 2.0f * 0.797884560802865355f;  // 2 sqrt(2 / pi)
inline constexpr float kTanhCubic = 0.044715f;
}  // namespace detail

// x / 2 (1 + tanh(u)) = x logistic(2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
OCTET_HOST_DEVICE inline float gelu_tanh(float x) {
  using namespace detail;
  return x * logistic_exact(kTwoTanhFactor * (x + kTanhCubic * x * x * x));
}
OCTET_HOST_DEVICE inline float gelu_tanh_slope(float x) {
  using namespace detail;
  const float s = logistic_exact(kTwoTanhFactor * (x + kTanhCubic * x * x * x));
  const float inner = kTwoTanhFactor * (1.0f + 3.0f * kTanhCubic * x * x);
  return s + x * s * (1.0f - s) * inner;
}

}  // namespace octet
