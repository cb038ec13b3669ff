#include <cmath>
#include <numbers>

#include "backends/cpu/reference/kernels.h"

namespace octet::reference {
namespace {

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

constexpr double kCubic = 0.044715;
double tanh_inner(double x) {
  return std::sqrt(2 / std::numbers::pi) * (x + kCubic * x * x * x);
}

double gelu_value(GeluKind kind, double x) {
  if (kind == GeluKind::erf) return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  return 0.5 * x * (1 + std::tanh(tanh_inner(x)));
}

double gelu_slope(GeluKind kind, double x) {
  if (kind == GeluKind::erf) {
    const double bell = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)) + x * bell;
  }
  const double t = std::tanh(tanh_inner(x));
  const double inner_slope = std::sqrt(2 / std::numbers::pi) * (1 + 3 * kCubic * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner_slope;
}

}  // namespace

void unquantized::gated_act(const RefCall& call) {
  for (size_t i = 0; i < call.out[0].data.size(); ++i) {
    const double gate = call.in[0].data[i];
    call.out[0].data[i] = gate * logistic(gate) * call.in[1].data[i];
  }
}

void unquantized::gated_act_grad(const RefCall& call) {
  for (size_t i = 0; i < call.out[0].data.size(); ++i) {
    const double dy = call.in[0].data[i], gate = call.in[1].data[i], up = call.in[2].data[i];
    const double s = logistic(gate);
    call.out[0].data[i] = dy * up * s * (1 + gate * (1 - s));
    call.out[1].data[i] = dy * gate * s;
  }
  if (std::get<GatedActAttrs>(call.attrs).amax) amax_of_results(call, 2);
}

void unquantized::gelu(const RefCall& call) {
  const GeluKind kind = std::get<GeluAttrs>(call.attrs).kind;
  for (size_t i = 0; i < call.out[0].data.size(); ++i) {
    call.out[0].data[i] = gelu_value(kind, call.in[0].data[i]);
  }
}

void unquantized::gelu_grad(const RefCall& call) {
  const GeluKind kind = std::get<GeluAttrs>(call.attrs).kind;
  for (size_t i = 0; i < call.out[0].data.size(); ++i) {
    call.out[0].data[i] = call.in[0].data[i] * gelu_slope(kind, call.in[1].data[i]);
  }
  if (std::get<GeluAttrs>(call.attrs).amax) amax_of_results(call, 1);
}

}  // namespace octet::reference
