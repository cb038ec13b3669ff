// Ops that make or move elements. Every dtype passes through unchanged, codes included.
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/error_rules.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

Results infer_fill(const Attrs& attrs, Types) {
  const auto& a = std::get<FillAttrs>(attrs);
  need_dims("fill", "shape", a.shape);
  return {real(a.shape)};
}

Results infer_iota(const Attrs& attrs, Types) {
  const auto& a = std::get<IotaAttrs>(attrs);
  need_dims("iota", "shape", a.shape);
  need_axes("iota", "axis", {a.axis}, a.shape.size());
  return {{.dtype = Dtype::i32, .shape = a.shape}};
}

Results infer_broadcast(const Attrs& attrs, Types in) {
  const auto& a = std::get<BroadcastAttrs>(attrs);
  need_dims("broadcast", "shape", a.shape);
  need_rank("broadcast", "x", in[0], a.axes.size());
  need_axes("broadcast", "axes", a.axes, a.shape.size());
  if (!std::is_sorted(a.axes.begin(), a.axes.end())) {
    fail("broadcast", "axes must rise, got {}", to_string(a.axes));
  }
  need_shape("broadcast", "x", in[0], at_axes(a.shape, a.axes));
  return {moved(in[0], a.shape)};
}

Results infer_reshape(const Attrs& attrs, Types in) {
  const auto& a = std::get<ReshapeAttrs>(attrs);
  need_dims("reshape", "shape", a.shape);
  if (n_elems(a.shape) != in[0].n_elems()) {
    fail("reshape", "expected a shape of {} elements, got {}", in[0].n_elems(), to_string(a.shape));
  }
  return {moved(in[0], a.shape)};
}

// The result lies as the node says.
Results infer_transpose(const Attrs& attrs, Types in, Said said) {
  const auto& a = std::get<TransposeAttrs>(attrs);
  need_rank("transpose", "x", in[0], a.perm.size());
  need_axes("transpose", "perm", a.perm, a.perm.size());
  const Shape shape = at_axes(in[0].shape, a.perm);
  TensorType y = moved(in[0], shape);
  if (!said.empty()) y.layout = said[0].layout;
  if (y.layout.pad > 1 || (y.layout.transposed && shape.size() != 2))
    fail("transpose", "y must be a matrix that is not padded, got {}", to_string(y));
  return {y};
}

Results infer_slice(const Attrs& attrs, Types in) {
  const auto& a = std::get<SliceAttrs>(attrs);
  const Shape& x = in[0].shape;
  Shape shape;
  if (a.start.size() != x.size() || a.limit.size() != x.size() || a.stride.size() != x.size()) {
    fail("slice", "expected start, limit and stride for {} axes, got {}, {}, {}", x.size(),
         to_string(a.start), to_string(a.limit), to_string(a.stride));
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const bool inside = 0 <= a.start[i] && a.start[i] <= a.limit[i] && a.limit[i] <= x[i];
    if (!inside || a.stride[i] < 1) {
      fail("slice", "expected 0 <= start <= limit <= {} and stride >= 1 on axis {}, got {}:{}:{}",
           x[i], i, a.start[i], a.limit[i], a.stride[i]);
    }
    shape.push_back((a.limit[i] - a.start[i] + a.stride[i] - 1) / a.stride[i]);
  }
  return {moved(in[0], shape)};
}

Results infer_pad(const Attrs& attrs, Types in) {
  const auto& a = std::get<PadAttrs>(attrs);
  const Shape& x = in[0].shape;
  Shape shape;
  if (a.low.size() != x.size() || a.high.size() != x.size() || a.interior.size() != x.size()) {
    fail("pad", "expected low, high and interior for {} axes, got {}, {}, {}", x.size(),
         to_string(a.low), to_string(a.high), to_string(a.interior));
  }
  for (size_t i = 0; i < x.size(); ++i) {
    if (a.low[i] < 0 || a.high[i] < 0 || a.interior[i] < 0) {
      fail("pad", "expected no negative padding on axis {}, got {}, {}, {}", i, a.low[i], a.high[i],
           a.interior[i]);
    }
    int64_t size = 0;  // gaps, then all
    if (__builtin_mul_overflow(std::max<int64_t>(x[i] - 1, 0), a.interior[i], &size) ||
        __builtin_add_overflow(size, a.low[i], &size) ||
        __builtin_add_overflow(size, a.high[i], &size) ||
        __builtin_add_overflow(size, x[i], &size)) {
      fail("pad", "the padding of axis {} is too large: {}, {}, {}", i, a.low[i], a.high[i],
           a.interior[i]);
    }
    shape.push_back(size);
  }
  return {moved(in[0], shape)};
}

Results infer_concatenate(const Attrs& attrs, Types in) {
  const auto& a = std::get<AxisAttrs>(attrs);
  Shape shape = in[0].shape;
  need_axes("concatenate", "axis", {a.axis}, shape.size());
  shape[at(a.axis)] = 0;
  for (const TensorType& type : in) {
    if (moved(type, {}) != moved(in[0], {})) {
      fail("concatenate", "operands must be floats or of one dtype, got {} and {}",
           to_string(in[0]), to_string(type));
    }
    Shape expected = in[0].shape;
    if (type.shape.size() == shape.size()) expected[at(a.axis)] = type.shape[at(a.axis)];
    need_shape("concatenate", "operand", type, expected);
    shape[at(a.axis)] += type.shape[at(a.axis)];
  }
  return {moved(in[0], shape)};
}

Results infer_reverse(const Attrs& attrs, Types in) {
  need_axes("reverse", "axes", std::get<AxesAttrs>(attrs).axes, in[0].shape.size());
  return {moved(in[0], in[0].shape)};
}

// Neighbours change places, then pairs of them, then fours, ...: what is added to make the axis a
// power of two comes to lie before it.
ValueId reversed(Builder& b, ValueId x, int64_t axis) {
  const Shape shape = b.shape(x);
  const int64_t n = shape[at(axis)];
  int64_t whole = 1;
  while (whole < n) whole *= 2;
  const Shape none(shape.size(), 0);
  PadAttrs pad{.low = none, .high = none, .interior = none};
  pad.high[at(axis)] = whole - n;
  if (whole > n) x = b.emit1(OpCode::pad, pad, {x});
  const Shape all = b.shape(x);
  for (int64_t half = 1; half < whole; half *= 2) {
    Shape split(all.begin(), all.begin() + axis);
    split.insert(split.end(), {whole / half / 2, 2, half});
    split.insert(split.end(), all.begin() + axis + 1, all.end());
    x = b.reshape(x, split);
    x = b.concatenate({b.slice(x, axis + 1, 1, 1), b.slice(x, axis + 1, 0, 1)}, axis + 1);
  }
  x = b.reshape(x, all);
  return whole > n ? b.slice(x, axis, whole - n, n) : x;
}

Values decompose_reverse(Builder& b, const Node& node) {
  ValueId x = node.in(Unary::x);
  for (const int64_t axis : std::get<AxesAttrs>(node.attrs).axes) {
    if (b.shape(x)[at(axis)] > 1) x = reversed(b, x, axis);
  }
  return {x};
}

Values vjp_reverse(Builder& b, const VjpCall& call) {
  return {b.emit1(OpCode::reverse, call.node.attrs, {call.dresults[0]})};
}

Values vjp_broadcast(Builder& b, const VjpCall& call) {
  const ValueId dy = call.dresults[0];
  const auto& a = std::get<BroadcastAttrs>(call.node.attrs);
  const Shape repeated = without(iota_axes(a.shape.size()), a.axes);
  return {repeated.empty() ? dy : b.reduce_sum(dy, repeated)};
}

Values vjp_reshape(Builder& b, const VjpCall& call) {
  return {b.reshape(call.dresults[0], b.shape(call.node.operands[0]))};
}

Values vjp_transpose(Builder& b, const VjpCall& call) {
  const auto& perm = std::get<TransposeAttrs>(call.node.attrs).perm;
  return {b.transpose(call.dresults[0], inverse(perm))};
}

Values vjp_slice(Builder& b, const VjpCall& call) {
  const auto& a = std::get<SliceAttrs>(call.node.attrs);
  const Shape& x = b.shape(call.node.operands[0]);
  const Shape& y = b.shape(call.node.results[0]);
  PadAttrs pad{.low = a.start, .high = x, .interior = a.stride, .value = 0};
  for (size_t i = 0; i < x.size(); ++i) {
    pad.interior[i] -= 1;
    const int64_t span = y[i] > 0 ? (y[i] - 1) * a.stride[i] + 1 : 0;
    pad.high[i] -= a.start[i] + span;
  }
  return {b.emit1(OpCode::pad, pad, {call.dresults[0]})};
}

Values vjp_pad(Builder& b, const VjpCall& call) {
  const auto& a = std::get<PadAttrs>(call.node.attrs);
  const Shape& x = b.shape(call.node.operands[0]);
  SliceAttrs slice{.start = a.low, .limit = a.low, .stride = a.interior};
  for (size_t i = 0; i < x.size(); ++i) {
    slice.stride[i] += 1;
    slice.limit[i] += x[i] > 0 ? (x[i] - 1) * slice.stride[i] + 1 : 0;
  }
  return {b.emit1(OpCode::slice, slice, {call.dresults[0]})};
}

Values vjp_concatenate(Builder& b, const VjpCall& call) {
  const int64_t axis = std::get<AxisAttrs>(call.node.attrs).axis;
  Values grads;
  int64_t start = 0;
  for (const ValueId id : call.node.operands) {
    const int64_t size = b.shape(id)[at(axis)];
    grads.push_back(b.slice(call.dresults[0], axis, start, size));
    start += size;
  }
  return grads;
}

}  // namespace

constinit const OpDef defs::fill =
    define(OpCode::fill, {.infer = infer_fill, .scale = scale::fill, .error = error::exact});
constinit const OpDef defs::iota =
    define(OpCode::iota, {.infer = infer_iota, .scale = scale::of_values, .error = error::exact});
constinit const OpDef defs::broadcast = define(
    OpCode::broadcast,
    {.infer = infer_broadcast, .vjp = vjp_broadcast, .scale = scale::same, .error = error::moved});
constinit const OpDef defs::reshape = define(OpCode::reshape, {.infer = infer_reshape,
                                                               .vjp = vjp_reshape,
                                                               .scale = scale::same,
                                                               .error = error::moved,
                                                               .inplace = kInplaceFirst});
constinit const OpDef defs::transpose = define(
    OpCode::transpose,
    {.infer = infer_transpose, .vjp = vjp_transpose, .scale = scale::same, .error = error::moved});
constinit const OpDef defs::slice =
    define(OpCode::slice,
           {.infer = infer_slice, .vjp = vjp_slice, .scale = scale::same, .error = error::moved});
constinit const OpDef defs::pad = define(
    OpCode::pad, {.infer = infer_pad, .vjp = vjp_pad, .scale = scale::pad, .error = error::pad});
constinit const OpDef defs::concatenate =
    define(OpCode::concatenate, {.infer = infer_concatenate,
                                 .vjp = vjp_concatenate,
                                 .scale = scale::largest,
                                 .error = error::concatenate});
constinit const OpDef defs::reverse = define(OpCode::reverse, {.infer = infer_reverse,
                                                               .vjp = vjp_reverse,
                                                               .decompose = decompose_reverse,
                                                               .scale = scale::same});

}  // namespace octet::ops
