#include "passes/rewrite/stored_sum.h"

namespace octet {

bool is_stored_gradient(const Graph& typed, ValueId gradient) {
  const Node* value = typed.producer(gradient);
  if (value == nullptr) return false;
  const bool widens = value->op == OpCode::rescale || value->op == OpCode::dequantize;
  return widens && typed.type(value->operands[0]).n_bytes() < typed.type(gradient).n_bytes();
}

StoredSum store_sum(Builder& builder, ValueId sum, ValueId amax) {
  const ValueId scale = builder.unary(OpCode::power_of_two, builder.scaled(amax, 0x1p-14));
  const ValueId inverse = builder.div(builder.fill({}, 1), scale);
  const ValueIds data =
      builder.emit_typed(OpCode::rescale, NoAttrs{}, {sum, inverse}, {Dtype::fp16});
  return {.data = data[Rescale::y], .scale = scale};
}

ValueId value_of(Builder& builder, const StoredSum& sum) {
  return builder.emit_typed(OpCode::rescale, NoAttrs{}, {sum.data, sum.scale},
                            {Dtype::f32})[Rescale::y];
}

}  // namespace octet
