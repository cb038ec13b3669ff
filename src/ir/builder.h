// Appends to a graph. Shapes and types are inferred; a wrong operand is an Error that names the op.
//
// The tag (layer, role, origin) set on the builder goes onto every node that it makes. In the
// Logical phase float results are `real`; later they take the dtype of the first float operand,
// statistics f32, unless emit_typed or default_dtype says otherwise.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "ir/op_def.h"

namespace octet {

class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}
  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  const TensorType& type(ValueId id) const { return graph_.type(id); }
  const Shape& shape(ValueId id) const { return graph_.type(id).shape; }

  Tag tag;
  // Dtype of float results that nothing gives one; unset: that of the first float operand.
  std::optional<Dtype> default_dtype;

  // A state's use and owner follow from its name (ir/states.h), where it is one of the table's.
  ValueId input(InputKind kind, std::string name, TensorType type);
  ValueId state(StateUse use, std::string_view owner, TensorType type);
  void output(std::string name, ValueId value, ValueId updates = kNoValue);
  // The next value of an input: an output that is written over it.
  void next(ValueId input, ValueId value);

  // Operands and results by slot, kNoValue for what is absent.
  ValueIds emit(OpCode op, Attrs attrs, ValueIds operands);
  // Float results take these dtypes instead, and what a quantizer makes has these types: by slot,
  // ignored where the op fixes the type.
  ValueIds emit_typed(OpCode op, Attrs attrs, ValueIds operands, const ResultTypes& types);
  // emit, for ops with one result.
  ValueId emit1(OpCode op, Attrs attrs, ValueIds operands);

  // Short hands for the primitives that decompositions and gradients are written in.
  ValueId unary(OpCode op, ValueId x) { return emit1(op, NoAttrs{}, {x}); }
  ValueId binary(OpCode op, ValueId a, ValueId b) { return emit1(op, NoAttrs{}, {a, b}); }
  ValueId add(ValueId a, ValueId b) { return binary(OpCode::add, a, b); }
  ValueId sub(ValueId a, ValueId b) { return binary(OpCode::sub, a, b); }
  ValueId mul(ValueId a, ValueId b) { return binary(OpCode::mul, a, b); }
  ValueId div(ValueId a, ValueId b) { return binary(OpCode::div, a, b); }
  ValueId maximum(ValueId a, ValueId b) { return binary(OpCode::maximum, a, b); }
  ValueId minimum(ValueId a, ValueId b) { return binary(OpCode::minimum, a, b); }
  ValueId less(ValueId a, ValueId b) { return binary(OpCode::less, a, b); }
  ValueId equal(ValueId a, ValueId b) { return binary(OpCode::equal, a, b); }
  ValueId rescale(ValueId x, ValueId factor) { return binary(OpCode::rescale, x, factor); }
  ValueId neg(ValueId x) { return unary(OpCode::neg, x); }
  ValueId select(ValueId condition, ValueId yes, ValueId no);
  ValueId fill(const Shape& shape, double value);
  ValueId iota(const Shape& shape, int64_t axis);
  ValueId fill_like(ValueId x, double value) { return fill(shape(x), value); }
  ValueId scaled(ValueId x, double factor) { return mul(x, fill_like(x, factor)); }
  ValueId plus(ValueId x, double constant) { return add(x, fill_like(x, constant)); }
  ValueId broadcast(ValueId x, const Shape& shape, const Shape& axes);
  // x's axes are all of shape's but `axis`, which repeats: the inverse of a reduction over `axis`.
  ValueId broadcast_along(ValueId x, const Shape& shape, int64_t axis);
  ValueId reduce_sum(ValueId x, const Shape& axes);
  ValueId reduce_max(ValueId x, const Shape& axes);
  ValueId reshape(ValueId x, const Shape& shape);
  ValueId concatenate(const ValueIds& parts, int64_t axis);
  // x's places [first, first + n) along an axis.
  ValueId slice(ValueId x, int64_t axis, int64_t first, int64_t n);
  ValueId transpose(ValueId x, const Shape& perm);
  ValueId cast(ValueId x, Dtype dtype);
  ValueId dequantize(ValueId q, ValueId scale, Dtype dtype);
  // The same matrix, lying so.
  ValueId laid_out(ValueId x, bool transposed);
  ValueId gemm(ValueId a, ValueId b, const GemmAttrs& attrs);
  // The largest of the ranks' x.
  ValueId max_over_ranks(int64_t ranks, ValueId x);

 private:
  Graph& graph_;
};

}  // namespace octet
