// SwiGLU's gate and both forms of GELU with their slopes, with the same bits on every machine
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
inline constexpr float kBell = 0.398942280401432678f;  // 1 / sqrt(2 pi)

// The normal distribution up to x, and its density times sqrt(2 pi). Of NaN a number.
struct Normal {
  float below, bell;
};
// With bell = e^(-x^2 / 2) the part beyond |x| is bell u p(u) with u = 1 / (1 + 0.3 |x|), p minimax
// of the relative error up to 13.2 (2^-23). Beyond 16 there is nothing.
OCTET_HOST_DEVICE inline Normal normal_of(float x) {
  const float a = fminf(fabsf(x), 16.0f);
  const float bell = exp_of(-0.5f * a * a);
  const float u = inverse_exact(fmaf(a, 0.3f, 1.0f));
  float p = 0x1.27a34ep-5f;
  p = fmaf(p, u, -0x1.457e86p-3f);
  p = fmaf(p, u, 0x1.acbcd8p-3f);
  p = fmaf(p, u, -0x1.ce6cbcp-5f);
  p = fmaf(p, u, 0x1.0a4e08p-3f);
  p = fmaf(p, u, 0x1.9769p-4f);
  p = fmaf(p, u, 0x1.eee786p-4f);
  p = fmaf(p, u, 0x1.e9fb6ep-4f);
  const float beyond = bell * (u * p);
  return {x < 0 ? beyond : 1.0f - beyond, bell};
}
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

// x / 2 (1 + erf(x / sqrt(2))), with a relative error below 2^-20 from -5 on and below 2^-17
// from -12 on.
OCTET_HOST_DEVICE inline float gelu_erf(float x) {
  return x * detail::normal_of(x).below;
}
OCTET_HOST_DEVICE inline float gelu_erf_slope(float x) {
  const detail::Normal normal = detail::normal_of(x);
  return fmaf(x, detail::kBell * normal.bell, normal.below);
}

}  // namespace octet
