// Activations whose operands are stored as codes in groups (stored.h): decoded span by
// span to f32, then elementwise.h's arithmetic. Deterministic; `scratch` is quantize_scratch(...)
// floats. Gradients may overwrite dy.
#pragma once

#include "backends/cpu/elementwise/elementwise.h"
#include "backends/cpu/quantize/quantize.h"

namespace octet::cpu {

// y = silu(gate) up
struct GatedStored {
  Stored gate = {}, up = {};
  Out y = {};
};
void gated_silu_stored(const GatedStored& args, RowShape shape, float* scratch, ThreadPool& pool);

// dgate = dy up silu'(gate), dup = dy silu(gate)
struct GatedStoredBackward {
  Stored gate = {}, up = {};
  In dy = {};
  Out dgate = {}, dup = {};
  AmaxSink* amax = nullptr;  // of both
};
void gated_silu_backward_stored(const GatedStoredBackward& args, RowShape shape, float* scratch,
                                ThreadPool& pool);

// y = gelu(x), or y = dy gelu'(x) where dy is present.
struct GeluStored {
  GeluKind kind = GeluKind::tanh;
  Stored x = {};
  In dy = {};
  Out y = {};
  AmaxSink* amax = nullptr;
};
void gelu_stored(const GeluStored& args, RowShape shape, float* scratch, ThreadPool& pool);

}  // namespace octet::cpu
