// Spans that are decoded, computed and reduced or encoded in registers: the same bits as the leaves
// of stored.h and elementwise.h one after another, without the buffers between them.
//
// They exist for registers of 16 floats, spans of whole registers, operands that are plain or e4m3
// codes in groups of 16 with bf16 scales, and codes of e4m3 or e5m2. Elsewhere they return false
// and have done nothing.
#pragma once

#include "backends/cpu/elementwise/elementwise.h"
#include "backends/cpu/elementwise/stored.h"

namespace octet::cpu {

// What becomes of a span's values.
struct SpanSink {
  float* amax = nullptr;     // signed_amax of stored.h; null: codes are wanted
  uint8_t* codes = nullptr;  // encode(f32(value * inv_scale))
  Dtype format = Dtype::e4m3;
  float inv_scale = 1;
};

// buffer = the values of codes.
bool fused_read(const Stored& matrix, const RowSpan& span, float* buffer);

// silu(gate) up
bool fused_gated(const Stored& gate, const Stored& up, const RowSpan& span, const SpanSink& sink);

// dgate = dy up silu'(gate), dup = dy silu(gate); gate and up of `args` are not looked at.
bool fused_gated_backward(const Stored& gate, const Stored& up, const RowSpan& span,
                          const GatedSiluBackward& args);

// normalize_span's value of a span of a matrix or of args.x, which is read where `x` is null.
bool fused_normalize(const Stored* x, const RowSpan& span, const NormalizeSpan& args,
                     const SpanSink& sink);

// Codes and scales of n elements in groups of 16 of a row.
bool fused_groups(In x, int64_t n, const GroupCodes& out);

}  // namespace octet::cpu
