// Element-wise kernels over n elements: f32 inside, f32 or bf16 storage for each operand, one
// rounding to nearest even on store. Outputs may alias inputs of the same type element for element.
// NaN and Inf propagate. Deterministic: each element depends on its own operands alone.
#pragma once

#include "backends/cpu/common/operand.h"

namespace octet::cpu {

class AmaxSink;  // amax_sink.h: where given, it takes in what is stored

// y = x in the storage type of y.
void cast(In x, Out y, int64_t n, ThreadPool& pool);

// y[i] = value, rounded once.
void fill(Out y, float value, int64_t n, ThreadPool& pool);

enum class BinaryOp { add, sub, mul, div, max, min };
struct BinaryArgs {
  BinaryOp op;
  In a, b;
  Out y;
};
void binary(const BinaryArgs& args, int64_t n, ThreadPool& pool);

// y = alpha a + beta b (b absent: y = alpha a). One multiplication, then one fused multiply-add.
struct ScaledSum {
  In a = {}, b = {};
  Out y = {};
  float alpha = 1.0f, beta = 1.0f;
};
void scaled_sum(const ScaledSum& args, int64_t n, ThreadPool& pool);

// exp, tanh and erf are within 2 ulp of f32.
//   silu: x / (1 + e^-x)    gelu_erf: x (1 + erf(x / sqrt 2)) / 2
//   gelu_tanh: x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2
enum class UnaryOp {
  neg,
  abs,
  square,
  sqrt,
  rsqrt,
  reciprocal,
  exp,
  tanh,
  erf,
  sigmoid,
  silu,
  gelu_erf,
  gelu_tanh
};
void unary(UnaryOp op, In x, Out y, int64_t n, ThreadPool& pool);

// dx = dy * f'(x) for f in {exp, tanh, sigmoid, silu, gelu_erf, gelu_tanh}; the others throw
// invalid_argument.
struct UnaryBackwardArgs {
  UnaryOp op;
  In x, dy;
  Out dx;
  AmaxSink* amax = nullptr;
};
void unary_backward(const UnaryBackwardArgs& args, int64_t n, ThreadPool& pool);

// y = silu(gate) * up, and dgate = dy up silu'(gate), dup = dy silu(gate). Source: Shazeer 2020
// (SwiGLU).
void gated_silu(In gate, In up, Out y, int64_t n, ThreadPool& pool);
struct GatedSiluBackward {
  In gate = {}, up = {}, dy = {};
  Out dgate = {}, dup = {};
  AmaxSink* amax = nullptr;  // of both; not by the span functions
};
void gated_silu_backward(const GatedSiluBackward& args, int64_t n, ThreadPool& pool);

// The same on the calling thread, for kernels that make their operands piece by piece.
void unary_span(UnaryOp op, In x, Out y, int64_t n);
void unary_backward_span(UnaryOp op, In x, In dy, Out dx, int64_t n);
void gated_silu_span(In gate, In up, Out y, int64_t n);
void gated_silu_backward_span(const GatedSiluBackward& args, int64_t n);

}  // namespace octet::cpu
