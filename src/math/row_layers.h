// The arithmetic of norms and activations of rows and of their gradients, stated once for CUDA's
// kernels, the reference that has their bits (backends/cpu/reference/card.h) and the proof of
// maxima (runtime/layer_maximum.h): each operation as it is written, with the same bits on every
// machine. The definition is the ops' decomposition (ir/ops/norm.cpp, activation.cpp); the CPU's
// vectors, whose operations have another order, state theirs in backends/cpu/elementwise.
#pragma once

#include "math/activation.h"

namespace octet {

// A layer without its quantizer, or the one whose gradient is taken.
enum class RowLayer : uint8_t { rms_norm, layer_norm, gated_silu, gelu_tanh, gelu_erf };
OCTET_HOST_DEVICE constexpr bool is_norm(RowLayer layer) {
  return layer <= RowLayer::layer_norm;
}

namespace detail {

OCTET_HOST_DEVICE inline float square_root(float x) {
  return sqrtf(x);
}
inline double square_root(double x) {
  return std::sqrt(x);
}

}  // namespace detail

// A row's mean, 0 of an RMSNorm, and 1 / sqrt(mean (x - mean)^2 + eps). T: float or double.
template <typename T>
struct RowStatistics {
  T mean, rstd;
};
// Of the sum of (x - mean)^2.
template <typename T>
OCTET_HOST_DEVICE inline T rstd_of(T squares, T cols, T eps) {
  return T(1) / detail::square_root(squares / cols + eps);
}
// A norm before its weight and bias, which follow in this order, each where it is there.
template <bool kCentred = true, typename T>
OCTET_HOST_DEVICE inline T normalized(T x, const RowStatistics<T>& row) {
  return (kCentred ? x - row.mean : x) * row.rstd;
}
// dx of h = normalized(x) and g = dy w, without an addend: rstd (g - mean g - h mean(g h)), the
// means over the row and that of g 0 of an RMSNorm.
struct RowMeans {
  float gh, g;
};
template <bool kCentred = true>
OCTET_HOST_DEVICE inline float norm_gradient(float g, float h, const RowMeans& mean, float rstd) {
  return fmaf(-h, mean.gh, kCentred ? g - mean.g : g) * rstd;
}

// An activation of one operand, at most |x| in magnitude (activation_codes.cu counts on that), and
// its slope.
OCTET_HOST_DEVICE inline float unary_activation(RowLayer layer, float x) {
  return layer == RowLayer::gelu_erf ? gelu_erf(x) : gelu_tanh(x);
}
OCTET_HOST_DEVICE inline float unary_slope(RowLayer layer, float x) {
  return layer == RowLayer::gelu_erf ? gelu_erf_slope(x) : gelu_tanh_slope(x);
}
// An activation of x, which of a gated one is the gate; `up` is that one's alone.
OCTET_HOST_DEVICE inline float activation(RowLayer layer, float x, float up) {
  return layer == RowLayer::gated_silu ? gated_silu(x, up) : unary_activation(layer, x);
}
// Gradients of x, which stands as the gate, and of up.
OCTET_HOST_DEVICE inline GatedGrad activation_gradient(RowLayer layer, float dy, float x,
                                                       float up) {
  if (layer == RowLayer::gated_silu) return gated_grad(dy, x, up);
  return {dy * unary_slope(layer, x), 0};
}

}  // namespace octet
