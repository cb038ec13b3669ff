// Layers of rows, norms and activations: what each computes, and which layer an op with a quantizer
// in it is without. Where the quantizer's operands and results are: OpRow::store.
#pragma once

#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/ops/common.h"
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

// The norm or activation whose result the op gives as codes, the first of its own results; nullptr
// where it is no such op.
const OpDef* quantized_layer(OpCode op);
inline constexpr SlotId kLayerQ = 0;  // of each such op

// An op's LayerQuantizeAttrs, of whatever layer.
using QuantizedLayerAttrs = LayerQuantizeAttrs<Attrs>;
QuantizedLayerAttrs split(const Attrs& attrs);
Attrs join(const QuantizedLayerAttrs& parts);

namespace ops {

// The result, in f32, of a norm whose statistics are given: (x - mean) rstd w + b, without what is
// absent.
ValueId emit_known(Builder& b, const Node& node);

// The history is shifted where it lies.
template <typename Op>
inline constexpr InplacePair kShiftedHistory[] = {{Op::next_history, Op::history}};

// The quantizer in an op (OpRow::store): how it quantizes, in one layout or both, and the types
// that the node states for its results.
struct Store {
  const OpDef& op;
  const QuantizeAttrs& q;
  bool both;
  Said said;
};
// Types of its results, by slot, of n values of this type; of the op's other results absent_type().
Results infer_store(const Store& store, size_t n, const TensorType& x, Types in);
// Its results, by slot: codes of the values, by the scale that is given, or by one of the maximum
// of what is measured, with a history as delayed_scale does; kNoValue for the op's other results.
Values emit_store(Builder& b, const Node& node, const Store& store, const Values& values,
                  const Values& measured);

}  // namespace ops

}  // namespace octet
