// Reductions: the named axes vanish. The maximum's gradient is shared evenly by equal elements.
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/error_rules.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

template <OpCode C>
Results infer_reduce(const Attrs& attrs, Types in) {
  const auto& a = std::get<AxesAttrs>(attrs);
  const auto op = op_def(C).name;
  need_float(op, "x", in[0]);
  need_axes(op, "axes", a.axes, in[0].shape.size());
  return {real(without(in[0].shape, a.axes))};
}

// A maximum is of something.
void need_elements(std::string_view op, const Shape& x, const Shape& axes) {
  for (const int64_t axis : axes) {
    if (x[at(axis)] == 0) fail(op, "axis {} is empty", axis);
  }
}

Results infer_reduce_max(const Attrs& attrs, Types in) {
  Results y = infer_reduce<OpCode::reduce_max>(attrs, in);
  need_elements("reduce_max", in[0].shape, std::get<AxesAttrs>(attrs).axes);
  return y;
}

Results infer_argmax(const Attrs& attrs, Types in) {
  const auto& a = std::get<AxisAttrs>(attrs);
  need_float("argmax", "x", in[0]);
  need_axes("argmax", "axis", {a.axis}, in[0].shape.size());
  need_elements("argmax", in[0].shape, {a.axis});
  return {{.dtype = Dtype::i32, .shape = without(in[0].shape, {a.axis})}};
}

// Repeats a reduced value over the axes that vanished.
ValueId spread(Builder& b, ValueId reduced, const Shape& shape, const Shape& axes) {
  return b.broadcast(reduced, shape, without(iota_axes(shape.size()), axes));
}

Values vjp_reduce_sum(Builder& b, const VjpCall& call) {
  const Shape shape = b.shape(call.node.operands[0]);
  return {spread(b, call.dresults[0], shape, std::get<AxesAttrs>(call.node.attrs).axes)};
}

Values vjp_reduce_max(Builder& b, const VjpCall& call) {
  const Shape& axes = std::get<AxesAttrs>(call.node.attrs).axes;
  const ValueId x = call.node.operands[0];
  const Shape shape = b.shape(x);
  const ValueId largest = spread(b, call.node.results[0], shape, axes);
  const ValueId is_largest = b.equal(x, largest);
  const ValueId ones = b.select(is_largest, b.fill(shape, 1), b.fill(shape, 0));
  const ValueId share = b.div(call.dresults[0], b.reduce_sum(ones, axes));
  return {b.mul(ones, spread(b, share, shape, axes))};
}

}  // namespace

constinit const OpDef defs::reduce_sum =
    define(OpCode::reduce_sum, {.infer = infer_reduce<OpCode::reduce_sum>,
                                .vjp = vjp_reduce_sum,
                                .scale = scale::reduce_sum,
                                .cost = cost_per_operand<1>,
                                .error = error::sum});
constinit const OpDef defs::reduce_max = define(OpCode::reduce_max, {.infer = infer_reduce_max,
                                                                     .vjp = vjp_reduce_max,
                                                                     .scale = scale::same,
                                                                     .cost = cost_per_operand<1>,
                                                                     .error = error::moved});
constinit const OpDef defs::argmax =
    define(OpCode::argmax,
           {.infer = infer_argmax, .scale = scale::of_values, .cost = cost_per_operand<1>});

}  // namespace octet::ops
