// Spans that are decoded, computed and reduced or encoded in registers: the same bits as the leaves
// of quantized_matrix.h and elementwise.h one after another, without the buffers between them.
//
// They exist for registers of 16 floats, spans of whole registers, operands that are unquantized or
// e4m3 codes in groups of 16 with bf16 scales, and codes of e4m3 or e5m2. Elsewhere they return
// false and have done nothing.
#pragma once

#include "backends/cpu/elementwise/elementwise.h"
#include "backends/cpu/elementwise/quantized_matrix.h"

namespace octet::cpu {

// Outputs of a span's values.
struct SpanOutput {
  float* amax = nullptr;     // signed_amax of quantized_matrix.h; null: codes are wanted
  uint8_t* codes = nullptr;  // encode(f32(value * inv_scale))
  Dtype format = Dtype::e4m3;
  float inv_scale = 1;
};

// buffer = the values of codes.
bool fused_read(const QuantizedMatrix& matrix, const RowSpan& span, float* buffer);

// silu(gate) up
bool fused_gated(const QuantizedMatrix& gate, const QuantizedMatrix& up, const RowSpan& span,
                 const SpanOutput& output);

// dx = dy up silu'(gate), dup = dy silu(gate); x and up of `args` are not looked at.
bool fused_gated_backward(const QuantizedMatrix& gate, const QuantizedMatrix& up,
                          const RowSpan& span, const ActivationBackward& args);

// normalize_span's value of a span of a matrix or of args.x, which is read where `x` is null.
bool fused_normalize(const QuantizedMatrix* x, const RowSpan& span, const NormalizeSpan& args,
                     const SpanOutput& output);

// Codes and scales of n elements in groups of 16 of a row.
bool fused_groups(In x, int64_t n, const GroupCodes& out);

}  // namespace octet::cpu
