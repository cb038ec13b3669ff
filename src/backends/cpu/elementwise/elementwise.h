// Element-wise kernels over n elements: f32 inside, f32 or bf16 storage for each operand, one
// rounding to nearest even on store. Outputs may alias inputs of the same type element for element.
// NaN and Inf propagate. Deterministic: each element depends on its own operands alone.
#pragma once

#include "backends/cpu/common/operand.h"
#include "ir/attr_enums.h"
#include "math/row_layers.h"

namespace octet::cpu {

class AmaxSink;  // amax_sink.h: where given, it takes in what is stored

// y = x in the storage type of y.
void cast(In x, Out y, int64_t n, ThreadPool& pool);

// y[i] = value, rounded once.
void fill(Out y, float value, int64_t n, ThreadPool& pool);

// y = op(a, b) for an op of math/elementwise.def that vectors compute; b is absent of an op of one
// operand. maximum and minimum hand a NaN on, whichever operand it is. A comparison's y are bools.
bool has_lanes(OpCode op);
struct ElementArgs {
  OpCode op;
  In a, b;
  Out y;
};
void elementwise(const ElementArgs& args, int64_t n, ThreadPool& pool);

// y[i] = condition[i] ? yes[i] : no[i], elements of 1, 2 or 4 bytes as they lie.
struct Selection {
  const uint8_t* condition = nullptr;
  const void *yes = nullptr, *no = nullptr;
  void* y = nullptr;
  int64_t bytes = 4;
};
void select(const Selection& args, int64_t n, ThreadPool& pool);

// y = alpha a + beta b (b absent: y = alpha a). One multiplication, then one fused multiply-add.
struct ScaledSum {
  In a = {}, b = {};
  Out y = {};
  float alpha = 1.0f, beta = 1.0f;
};
void scaled_sum(const ScaledSum& args, int64_t n, ThreadPool& pool);

// y = gelu(x), or silu(x) up, where x is the gate; up is absent of a GELU. Sources: Hendrycks &
// Gimpel 2016; Shazeer 2020 (SwiGLU).
//   gelu_erf: x (1 + erf(x / sqrt 2)) / 2
//   gelu_tanh: x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2
struct ActivationArgs {
  RowLayer layer = RowLayer::gated_silu;
  In x = {}, up = {};
  Out y = {};
};
void activate(const ActivationArgs& args, int64_t n, ThreadPool& pool);
// dx = dy gelu'(x), or dx = dy up silu'(x) and dup = dy silu(x).
struct ActivationBackward {
  RowLayer layer = RowLayer::gated_silu;
  In x = {}, up = {}, dy = {};
  Out dx = {}, dup = {};
  AmaxSink* amax = nullptr;  // of all that is written

  void find_amax(int64_t begin, int64_t n) const;
};
void activate_backward(const ActivationBackward& args, int64_t n, ThreadPool& pool);

// The same on the calling thread and without an amax, for kernels that make their operands piece by
// piece.
void activate_span(const ActivationArgs& args, int64_t n);
void activate_backward_span(const ActivationBackward& args, int64_t n);

}  // namespace octet::cpu
