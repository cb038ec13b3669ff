// Activations whose operands are stored as codes in groups (quantized_matrix.h): decoded span by
// span to f32, then elementwise.h's arithmetic. Deterministic; `scratch` is quantize_scratch(...)
// floats. Gradients may overwrite dy.
#pragma once

#include "backends/cpu/elementwise/elementwise.h"
#include "backends/cpu/quantize/quantize.h"

namespace octet::cpu {

// y = silu(gate) up
struct GatedOnCodes {
  QuantizedMatrix gate = {}, up = {};
  Out y = {};
};
void gated_silu_on_codes(const GatedOnCodes& args, RowShape shape, float* scratch,
                         ThreadPool& pool);

// dgate = dy up silu'(gate), dup = dy silu(gate)
struct GatedBackwardOnCodes {
  QuantizedMatrix gate = {}, up = {};
  In dy = {};
  Out dgate = {}, dup = {};
  AmaxSink* amax = nullptr;  // of both
};
void gated_silu_backward_on_codes(const GatedBackwardOnCodes& args, RowShape shape, float* scratch,
                                  ThreadPool& pool);

// y = gelu(x), or y = dy gelu'(x) where dy is present.
struct GeluOnCodes {
  GeluKind kind = GeluKind::tanh;
  QuantizedMatrix x = {};
  In dy = {};
  Out y = {};
  AmaxSink* amax = nullptr;
};
void gelu_on_codes(const GeluOnCodes& args, RowShape shape, float* scratch, ThreadPool& pool);

}  // namespace octet::cpu
