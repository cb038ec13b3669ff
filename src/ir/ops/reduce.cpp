// Reductions: the named axes vanish. The gradient of a maximum, and of a minimum, is shared evenly
// by equal elements. reduce_prod multiplies the halves of an axis, so that its gradient is right
// beside zeros; reduce_window reduces along an axis after the other, in the order of elements.
#include <algorithm>
#include <limits>

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

template <OpCode C>
Results infer_extremum(const Attrs& attrs, Types in) {
  Results y = infer_reduce<C>(attrs, in);
  need_elements(op_def(C).name, in[0].shape, std::get<AxesAttrs>(attrs).axes);
  return y;
}

template <OpCode C>
Results infer_place(const Attrs& attrs, Types in) {
  const auto& a = std::get<AxisAttrs>(attrs);
  const auto op = op_def(C).name;
  need_float(op, "x", in[0]);
  need_axes(op, "axis", {a.axis}, in[0].shape.size());
  need_elements(op, in[0].shape, {a.axis});
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

Values vjp_extremum(Builder& b, const VjpCall& call) {
  const Shape& axes = std::get<AxesAttrs>(call.node.attrs).axes;
  const ValueId x = call.node.operands[0];
  const Shape shape = b.shape(x);
  const ValueId extremum = spread(b, call.node.results[0], shape, axes);
  const ValueId is_it = b.equal(x, extremum);
  const ValueId ones = b.select(is_it, b.fill(shape, 1), b.fill(shape, 0));
  const ValueId share = b.div(call.dresults[0], b.reduce_sum(ones, axes));
  return {b.mul(ones, spread(b, share, shape, axes))};
}

Values decompose_reduce_min(Builder& b, const Node& node) {
  return {b.neg(b.reduce_max(b.neg(node.in(Unary::x)), std::get<AxesAttrs>(node.attrs).axes))};
}

Values decompose_argmin(Builder& b, const Node& node) {
  return {b.emit1(OpCode::argmax, node.attrs, {b.neg(node.in(Unary::x))})};
}

// The first half times the second, until one is left; a middle element is multiplied last.
ValueId product_along(Builder& b, ValueId x, int64_t axis) {
  const int64_t n = b.shape(x)[at(axis)];
  const int64_t half = n / 2;
  if (half == 0) return x;
  const ValueId low = b.slice(x, axis, 0, half), high = b.slice(x, axis, n - half, half);
  const ValueId product = product_along(b, emit_wide(b, OpCode::mul, low, high), axis);
  return n % 2 == 0 ? product : emit_wide(b, OpCode::mul, product, b.slice(x, axis, half, 1));
}

Values decompose_reduce_prod(Builder& b, const Node& node) {
  const Shape& axes = std::get<AxesAttrs>(node.attrs).axes;
  ValueId x = node.in(Unary::x);
  const Shape result = without(b.shape(x), axes);
  if (n_elems(at_axes(b.shape(x), axes)) == 0) return {b.fill(result, 1)};
  for (const int64_t axis : axes) x = product_along(b, x, axis);
  return {b.reshape(x, result)};
}

Results infer_reduce_window(const Attrs& attrs, Types in) {
  constexpr std::string_view kName = "reduce_window";
  const auto& a = std::get<WindowAttrs>(attrs);
  need_float(kName, "x", in[0]);
  const Shape& x = in[0].shape;
  for (const Shape* said : {&a.window, &a.stride, &a.low, &a.high}) {
    if (said->size() != x.size())
      fail(kName, "expected window, stride, low and high for {} axes, got {}, {}, {}, {}", x.size(),
           to_string(a.window), to_string(a.stride), to_string(a.low), to_string(a.high));
  }
  Shape shape;
  for (size_t i = 0; i < x.size(); ++i) {
    if (a.window[i] < 1 || a.stride[i] < 1 || a.low[i] < 0 || a.high[i] < 0)
      fail(kName,
           "axis {} must have window and stride from 1, low and high from 0, got {}, {}, {}, {}", i,
           a.window[i], a.stride[i], a.low[i], a.high[i]);
    int64_t size = x[i];
    if (__builtin_add_overflow(size, a.low[i], &size) ||
        __builtin_add_overflow(size, a.high[i], &size) || size < a.window[i])
      fail(kName, "axis {} of {} with {} and {} more must hold a window of {}", i, x[i], a.low[i],
           a.high[i], a.window[i]);
    shape.push_back((size - a.window[i]) / a.stride[i] + 1);
  }
  return {real(shape)};
}

// Place `first` of every window along an axis.
ValueId each_window(Builder& b, ValueId x, int64_t axis, int64_t first, const WindowAttrs& a) {
  const Shape& shape = b.shape(x);
  const int64_t n = (shape[at(axis)] - a.window[at(axis)]) / a.stride[at(axis)] + 1;
  SliceAttrs attrs{
      .start = Shape(shape.size(), 0), .limit = shape, .stride = Shape(shape.size(), 1)};
  attrs.start[at(axis)] = first;
  attrs.limit[at(axis)] = first + (n - 1) * a.stride[at(axis)] + 1;
  attrs.stride[at(axis)] = a.stride[at(axis)];
  return b.emit1(OpCode::slice, attrs, {x});
}

Values decompose_reduce_window(Builder& b, const Node& node) {
  const auto& a = std::get<WindowAttrs>(node.attrs);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const OpCode op = a.reduction == WindowReduction::sum   ? OpCode::add
                    : a.reduction == WindowReduction::max ? OpCode::maximum
                                                          : OpCode::minimum;
  PadAttrs pad{.low = a.low, .high = a.high, .interior = Shape(a.low.size(), 0)};
  if (a.reduction != WindowReduction::sum)
    pad.value = a.reduction == WindowReduction::max ? -kInf : kInf;
  ValueId x = node.in(Unary::x);
  if (pad.low != pad.interior || pad.high != pad.interior) x = b.emit1(OpCode::pad, pad, {x});
  for (size_t i = 0; i < a.window.size(); ++i) {
    const auto axis = static_cast<int64_t>(i);
    if (a.window[i] == 1 && a.stride[i] == 1) continue;
    ValueId total = each_window(b, x, axis, 0, a);
    for (int64_t k = 1; k < a.window[i]; ++k)
      total = emit_wide(b, op, total, each_window(b, x, axis, k, a));
    x = total;
  }
  return {x};
}

Cost cost_window(const Graph& graph, const Node& node) {
  const auto& window = std::get<WindowAttrs>(node.attrs).window;
  return cost_per_result(graph, node, static_cast<double>(n_elems(window)));
}

}  // namespace

constinit const OpDef defs::reduce_sum =
    define(OpCode::reduce_sum, {.infer = infer_reduce<OpCode::reduce_sum>,
                                .vjp = vjp_reduce_sum,
                                .scale = scale::reduce_sum,
                                .cost = cost_per_operand<1>,
                                .error = error::sum});
constinit const OpDef defs::reduce_max =
    define(OpCode::reduce_max, {.infer = infer_extremum<OpCode::reduce_max>,
                                .vjp = vjp_extremum,
                                .scale = scale::same,
                                .cost = cost_per_operand<1>,
                                .error = error::moved});
constinit const OpDef defs::argmax = define(
    OpCode::argmax,
    {.infer = infer_place<OpCode::argmax>, .scale = scale::of_values, .cost = cost_per_operand<1>});
constinit const OpDef defs::reduce_min =
    define(OpCode::reduce_min, {.infer = infer_extremum<OpCode::reduce_min>,
                                .vjp = vjp_extremum,
                                .decompose = decompose_reduce_min,
                                .scale = scale::same,
                                .cost = cost_per_operand<1>});
constinit const OpDef defs::reduce_prod =
    define(OpCode::reduce_prod, {.infer = infer_reduce<OpCode::reduce_prod>,
                                 .vjp = vjp_of_steps,
                                 .decompose = decompose_reduce_prod,
                                 .scale = scale::reduce_prod,
                                 .cost = cost_per_operand<1>});
constinit const OpDef defs::argmin = define(OpCode::argmin, {.infer = infer_place<OpCode::argmin>,
                                                             .decompose = decompose_argmin,
                                                             .scale = scale::of_values,
                                                             .cost = cost_per_operand<1>});
constinit const OpDef defs::reduce_window =
    define(OpCode::reduce_window, {.infer = infer_reduce_window,
                                   .vjp = vjp_of_steps,
                                   .decompose = decompose_reduce_window,
                                   .scale = scale::reduce_window,
                                   .cost = cost_window});

}  // namespace octet::ops
