#include "ir/error_bounds.h"

namespace octet {

ValueIds ErrorBounds::values(const ValueIds& ids) const {
  ValueIds repeated;
  for (const ValueId id : ids) repeated.push_back(value(id));
  return repeated;
}

ValueId ErrorBounds::error(ValueId id) const {
  const auto found = errors_.find(id);
  return found == errors_.end() ? kNoValue : found->second;
}

ValueId ErrorBounds::error_or_zeros(ValueId id) {
  if (error(id) != kNoValue) return error(id);
  return b.emit_typed(OpCode::fill, FillAttrs{.shape = from_.type(id).shape}, {}, {Dtype::f32})[0];
}

ValueId ErrorBounds::size(ValueId id) {
  ValueId x = value(id);
  if (b.type(x).dtype != Dtype::f32) x = b.cast(x, Dtype::f32);
  return b.unary(OpCode::abs, x);
}

ValueId ErrorBounds::moved(const Node& node, const Attrs& attrs) {
  ValueIds operands = values(node.operands);
  operands[0] = error(node.operands[0]);
  return operands[0] == kNoValue ? kNoValue : b.emit1(node.op, attrs, operands);
}

}  // namespace octet
