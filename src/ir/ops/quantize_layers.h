// Layers of rows, norms and activations: what each computes, which op a layer with a quantizer in
// it is without, and where the quantizer's operands and results are.
#pragma once

#include "ir/builder.h"
#include "ir/op_def.h"
#include "math/row_layers.h"

namespace octet {

// An activation, or the gradient of one: element by element, where a norm goes by rows.
inline bool is_activation(OpCode op) {
  return is_norm_or_activation(op) && !op_def(op).is_norm;
}
inline bool is_activation_gradient(OpCode op) {
  return op_def(op).saves && op_def(op).is_gradient && !op_def(op).is_norm;
}
// The arithmetic of a norm or an activation, or of their gradient, from its attributes.
RowLayer row_layer(OpCode layer, const Attrs& attrs);

// kNoSlot where the op has no such operand or result.
struct QuantizedLayer {
  OpCode op, layer;
  SlotId given_scale, history, known_mean, known_rstd;  // operands, behind the layer's own
  SlotId mean, rstd, next_history, q_transposed;        // results, behind q, scale, nonfinite
  SlotId kept =
      kNoSlot;  // results too: codes and scales of each stored operand, as the op keeps it

  // The layer's statistics, with which the two others go together.
  size_t n_statistics() const { return (mean == kNoSlot ? 0 : 1) + (rstd == kNoSlot ? 0 : 1); }
};
// Results that every one of them has first.
inline constexpr SlotId kLayerQ = 0, kLayerScale = 1, kLayerNonfinite = 2;

// nullptr where the op is none.
const QuantizedLayer* quantized_layer(OpCode op);

// The layer's attributes, the quantizer's, and whether it writes both layouts.
struct QuantizedLayerAttrs {
  Attrs layer;
  QuantizeAttrs q;
  bool both = false;
  double kept_target = 0;  // 0: it keeps none of its operands
};
QuantizedLayerAttrs split(const Attrs& attrs);
Attrs join(const QuantizedLayerAttrs& parts);

namespace ops {

// A norm whose statistics are known: (x - mean) rstd w + b, without what is absent.
struct KnownNorm {
  ValueId x, mean, rstd, weight, bias;
};
ValueId emit_normalized(Builder& b, const KnownNorm& norm);

// The norm's x in f32, dequantized where it is quantized.
ValueId emit_f32(Builder& b, const Node& node, ScalePlace place);

// The history is shifted where it lies.
template <typename Op>
inline constexpr InplacePair kShiftedHistory[] = {{Op::next_history, Op::history}};

// The scale that an op with a quantizer makes of its values, as its decomposition has it: from
// their amax, or with a history as delayed_scale does (kNoValue: without one, and no next one).
struct OwnScale {
  ValueId scale, nonfinite, next_history;
};
OwnScale emit_own_scale(Builder& b, const AmaxScaleAttrs& attrs, const ValueIds& values,
                        ValueId history);

}  // namespace ops

}  // namespace octet
