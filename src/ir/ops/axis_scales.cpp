// Scales of rows and of columns: which operands keep theirs, and what becomes of it.
#include <algorithm>
#include <iterator>

#include "ir/ops/axis_scales.h"
#include "ir/ops/common.h"

namespace octet::ops::scale {
namespace {

bool has_axis_factor(const Scaler& s, const Scaled& x) {
  return x.factor != kNoValue && !s.b.shape(x.factor).empty();
}

bool is_of_rows(const Shape& factor, const Shape& x) {
  return factor == Shape{x[0], 1};
}
bool is_of_columns(const Shape& factor, const Shape& x) {
  return factor == Shape{1, x[1]};
}

// Those along the axis that is summed over come to one scale; an addend joins at one scale.
bool gemm_keeps(const Node& node, size_t slot, const Shape& factor, const Shape& x) {
  if (node.in(Gemm::c) != kNoValue) return false;
  const auto& attrs = std::get<GemmAttrs>(node.attrs);
  if (slot == Gemm::a) return attrs.trans_a ? is_of_columns(factor, x) : is_of_rows(factor, x);
  return attrs.trans_b ? is_of_rows(factor, x) : is_of_columns(factor, x);
}

struct OpAxisScales {
  OpCode op;
  AxisScales takes;
};
// Beside norms and activations. Of others' operands a matrix comes to one scale.
constexpr OpAxisScales kAxisScales[] = {
    {OpCode::cross_entropy, AxisScales::values},
    {OpCode::global_norm, AxisScales::values},
    {OpCode::neg, AxisScales::elements},
    {OpCode::abs, AxisScales::elements},
    {OpCode::sign, AxisScales::elements},
    {OpCode::cast, AxisScales::elements},
    {OpCode::stop_gradient, AxisScales::elements},
    {OpCode::rescale, AxisScales::elements},
    {OpCode::cast_in, AxisScales::elements},
    {OpCode::add, AxisScales::elements},
    {OpCode::sub, AxisScales::elements},
    {OpCode::mul, AxisScales::elements},
    {OpCode::div, AxisScales::elements},
    {OpCode::maximum, AxisScales::elements},
    {OpCode::minimum, AxisScales::elements},
    {OpCode::less, AxisScales::elements},
    {OpCode::equal, AxisScales::elements},
    {OpCode::not_equal, AxisScales::elements},
    {OpCode::less_equal, AxisScales::elements},
    {OpCode::greater, AxisScales::elements},
    {OpCode::greater_equal, AxisScales::elements},
    {OpCode::select, AxisScales::elements},
    {OpCode::square, AxisScales::elements},
    {OpCode::integer_pow, AxisScales::elements},
    {OpCode::sqrt, AxisScales::elements},
    {OpCode::rsqrt, AxisScales::elements},
    {OpCode::set_scale, AxisScales::elements},
    {OpCode::rebalance, AxisScales::elements},
    {OpCode::dynamic_rescale, AxisScales::elements},
    {OpCode::delayed_rescale, AxisScales::elements},
    {OpCode::transpose, AxisScales::moved},
    {OpCode::slice, AxisScales::moved},
    {OpCode::reverse, AxisScales::moved},
    {OpCode::gather, AxisScales::table},
    {OpCode::embedding, AxisScales::table},
    {OpCode::gemm, AxisScales::gemm},
};

}  // namespace

std::optional<Granularity> axis_granularity(const Shape& scales, const Shape& x) {
  if (x.size() != 2) return std::nullopt;
  using Kind = Granularity::Kind;
  const Granularity rows = {.kind = Kind::row};
  const Granularity columns = {.kind = Kind::column_group, .size = std::max<int64_t>(1, x[0])};
  for (const Granularity& granularity : {rows, columns}) {
    const TensorType type{.dtype = Dtype::f32, .shape = x, .granularity = granularity};
    if (scale_type(type).shape == scales) return granularity;
  }
  return std::nullopt;
}

AxisScales axis_scales(OpCode op) {
  const OpDef& def = op_def(op);
  if (def.is_norm) return def.is_gradient ? AxisScales::one : AxisScales::values;
  if (def.saves) return AxisScales::elements;  // activations, and their gradients
  const auto* const found = std::ranges::find(kAxisScales, op, &OpAxisScales::op);
  return found == std::end(kAxisScales) ? AxisScales::one : found->takes;
}

std::vector<Scaled> with_axis_scales(Scaler& s, const Graph& graph, const Node& node,
                                     std::vector<Scaled> operands) {
  const AxisScales takes = axis_scales(node.op);
  Shape first;  // of the factor that operands of one shape keep
  for (size_t i = 0; i < operands.size(); ++i) {
    Scaled& x = operands[i];
    if (!has_axis_factor(s, x)) continue;
    const Shape factor = s.b.shape(x.factor), &shape = graph.type(node.in(i)).shape;
    bool keeps = takes == AxisScales::values || takes == AxisScales::moved;
    if (takes == AxisScales::elements) {
      if (first.empty()) first = factor;
      keeps = factor == first;
    } else if (takes == AxisScales::table) {
      keeps = graph.type(node.in(1)).shape.size() == 1;
    } else if (takes == AxisScales::gemm) {
      keeps = gemm_keeps(node, i, factor, shape);
    }
    if (!keeps) x = at_one_scale(s, x);
  }
  return operands;
}

Scaled at_one_scale(Scaler& s, const Scaled& x) {
  if (!has_axis_factor(s, x)) return x;
  return s.to(x, {x.log2, s.b.reduce_max(x.factor, {0, 1})});
}

ValueId moved_factor(Scaler& s, const ScaleCall& call, ValueId factor) {
  if (factor == kNoValue || s.b.shape(factor).empty()) return factor;
  const Shape shape = s.b.shape(factor), &x = call.shape(0);
  switch (axis_scales(call.node.op)) {
    case AxisScales::table:
      return is_of_rows(shape, x) ? s.b.binary(OpCode::gather, factor, call[1].data) : factor;
    case AxisScales::moved:
      break;
    default:
      return factor;
  }
  Attrs attrs = call.node.attrs;
  if (auto* slice = std::get_if<SliceAttrs>(&attrs)) {
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] == x[axis]) continue;
      slice->start[axis] = 0, slice->limit[axis] = 1, slice->stride[axis] = 1;
    }
  }
  return s.b.emit1(call.node.op, attrs, {factor});
}

ValueId take_axis_factor(Scaler& s, Scaled& x, bool trans) {
  if (!has_axis_factor(s, x)) return kNoValue;
  const ValueId factor = x.factor;
  x.factor = kNoValue;
  return trans ? s.b.transpose(factor, {1, 0}) : factor;
}

Scaled with_axis_factors(Scaler& s, Scaled y, ValueId rows, ValueId columns) {
  y.factor = s.multiplier(0, y.factor, columns);
  if (rows == kNoValue) return y;
  y = at_one_scale(s, y);
  y.factor = s.multiplier(0, y.factor, rows);
  return y;
}

}  // namespace octet::ops::scale
