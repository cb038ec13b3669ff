// Ops about scales: two that compute (rescale, power_of_two), and those that passes/scalify reads
// and that mean the identity without it. Source: Scalify's primitives (docs/scalify.md).
#include "ir/ops/axis_scales.h"
#include "ir/ops/common.h"
#include "ir/ops/error_rules.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

// One of x, or one a row or a column.
void need_scale_of(std::string_view op, std::string_view what, const TensorType& scale,
                   const Shape& x) {
  need_float(op, what, scale);
  if (scale.shape.empty() || scale::axis_granularity(scale.shape, x)) return;
  fail(op, "{} must be [], or [{},1] or [1,{}] of a matrix, got {}", what, x.empty() ? 1 : x[0],
       x.empty() ? 1 : x.back(), to_string(scale.shape));
}

// A scale is a power of two that f32 has, with its inverse.
void need_log2(std::string_view op, int64_t log2) {
  constexpr int64_t kMost = 126;
  if (log2 < -kMost || log2 > kMost)
    fail(op, "log2 must be from {} to {}, got {}", -kMost, kMost, log2);
}

Results infer_rescale(const Attrs&, Types in) {
  need_float("rescale", "x", in[0]);
  need_scale_of("rescale", "factor", in[1], in[0].shape);
  return {real(in[0].shape)};
}

Results infer_rebalance(const Attrs& attrs, Types in) {
  need_float("rebalance", "x", in[0]);
  need_log2("rebalance", std::get<ScaleAttrs>(attrs).log2);
  return {real(in[0].shape)};
}

Results infer_set_scale(const Attrs& attrs, Types in) {
  need_float("set_scale", "x", in[0]);
  need_log2("set_scale", std::get<ScaleAttrs>(attrs).log2);
  if (!absent(in, SetScale::scale))
    need_scale_of("set_scale", "scale", in[SetScale::scale], in[0].shape);
  return {real(in[0].shape)};
}

Results infer_power_of_two(const Attrs&, Types in) {
  need_float("power_of_two", "x", in[0]);
  return {real(in[0].shape)};
}

Results infer_delayed_rescale(const Attrs&, Types in) {
  need_float("delayed_rescale", "x", in[0]);
  need_float("delayed_rescale", "factor", in[1], {});
  return {real(in[0].shape), real({})};
}

Results infer_custom_scale(const Attrs& attrs, Types in) {
  const auto& a = std::get<CustomScaleAttrs>(attrs);
  need_log2("custom_scale", a.log2);
  const size_t n_powers = in.size() - 1 + (a.direction == Direction::backward ? 1 : 0);
  if (a.powers.size() != n_powers)
    fail("custom_scale", "expected {} powers, got {}", n_powers, a.powers.size());
  for (const TensorType& type : in) need_float("custom_scale", "x", type);
  return {real(in[0].shape)};
}

Results infer_store_scaled(const Attrs&, Types in) {
  need_float("store_scaled", "x", in[0]);
  need_float("store_scaled", "scale", in[1], {});
  const TensorType attempt{Dtype::u32, {}};
  if (in[2] != attempt)
    fail("store_scaled", "attempt must be {}, got {}", to_string(attempt), to_string(in[2]));
  return {{.dtype = Dtype::fp16, .shape = in[0].shape}};
}

Results infer_data_scale(const Attrs&, Types in) {
  need_float("data_scale", "x", in[0]);
  return {real(in[0].shape), real({})};
}

// The axes of x along which a factor differs; along the others it repeats.
Shape axes_of_factor(const Shape& factor, const Shape& x) {
  Shape axes;
  for (size_t i = 0; i < factor.size(); ++i)
    if (factor[i] == x[i]) axes.push_back(static_cast<int64_t>(i));
  return axes;
}

Values vjp_rescale(Builder& b, const VjpCall& call) {
  const ValueId dy = call.dresults[0], x = call.node.in(Rescale::x);
  const ValueId factor = call.node.in(Rescale::factor);
  const Shape shape = b.shape(x), of_factor = b.shape(factor);
  Values gradients = {b.rescale(dy, factor), kNoValue};
  if (!call.wants(Rescale::factor)) return gradients;
  const Shape repeated = without(iota_axes(shape.size()), axes_of_factor(of_factor, shape));
  const ValueId sum = b.reduce_sum(b.mul(dy, x), repeated);
  gradients[Rescale::factor] = of_factor.empty() ? sum : b.reshape(sum, of_factor);
  return gradients;
}

Values vjp_same(Builder&, const VjpCall& call) {
  return {call.dresults[0]};
}

// Applies the op to the gradient as it comes back, if meant for it, by the same further operands.
template <typename A>
Values vjp_directed(Builder& b, const VjpCall& call) {
  auto attrs = std::get<A>(call.node.attrs);
  Values gradients(call.node.operands.size(), kNoValue);
  gradients[0] = call.dresults[0];
  if (attrs.direction == Direction::forward) return gradients;
  attrs.direction = Direction::forward;
  Values operands = call.node.operands;
  operands[0] = gradients[0];
  gradients[0] = b.emit1(call.node.op, attrs, operands);
  return gradients;
}

// The factor's next value is then the gradient's.
Values vjp_delayed_rescale(Builder& b, const VjpCall& call) {
  only_first_gradient(call);
  auto attrs = std::get<DynamicRescaleAttrs>(call.node.attrs);
  const ValueId dy = call.dresults[DelayedRescale::y];
  const ValueId factor = call.node.in(DelayedRescale::factor);
  if (attrs.direction == Direction::forward) return {dy, kNoValue};
  attrs.direction = Direction::forward;
  const auto dx = b.emit(call.node.op, attrs, {dy, factor});
  b.next(factor, dx[DelayedRescale::next_factor]);
  return {dx[DelayedRescale::y], kNoValue};
}

// The gradient that came into the sub-graph, marked on its way (vjp_custom_scale).
ValueId gradient_into(const Graph& graph, int64_t subgraph) {
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const auto* mark = std::get_if<CustomScaleAttrs>(&node->attrs);
    if (mark != nullptr && mark->subgraph == subgraph && node->tag.role == Role::backward)
      return node->out(CustomScale::y);
  }
  return kNoValue;
}

// Out of the sub-graph: the gradient is marked, with the scale that it has. Into it: the gradient
// takes the scale of its own rule.
Values vjp_custom_scale(Builder& b, const VjpCall& call) {
  auto attrs = std::get<CustomScaleAttrs>(call.node.attrs);
  Values gradients(call.node.operands.size(), kNoValue);
  const ValueId dy = gradients[0] = call.dresults[0];
  if (attrs.subgraph < 0) return gradients;
  if (attrs.direction == Direction::forward) {
    attrs.powers = {1}, attrs.log2 = 0;
    gradients[0] = b.emit1(OpCode::custom_scale, attrs, {dy, dy});
    return gradients;
  }
  const ValueId into = gradient_into(b.graph(), attrs.subgraph);
  if (into == kNoValue) return gradients;
  attrs.direction = Direction::forward, attrs.subgraph = -1;
  Values operands = {dy, into};
  operands.insert(operands.end(), call.node.operands.begin() + 1, call.node.operands.end());
  gradients[0] = b.emit1(OpCode::custom_scale, attrs, operands);
  return gradients;
}

Values vjp_data_scale(Builder&, const VjpCall& call) {
  only_first_gradient(call);
  return {call.dresults[DataScale::data]};
}

Values decompose_rescale(Builder& b, const Node& node) {
  const ValueId x = node.in(Rescale::x);
  const Dtype dtype = b.type(x).dtype,
              wide = b.graph().phase == Phase::logical ? dtype : Dtype::f32;
  const Shape shape = b.shape(x);
  ValueId factor = node.in(Rescale::factor);
  const Shape axes = axes_of_factor(b.shape(factor), shape);
  if (!b.shape(factor).empty()) factor = b.reshape(factor, at_axes(shape, axes));
  if (b.type(factor).dtype != wide) factor = b.cast(factor, wide);  // a broadcast only moves
  factor = b.emit_typed(OpCode::broadcast, BroadcastAttrs{.shape = shape, .axes = axes}, {factor},
                        {wide})[0];
  return {b.emit_typed(OpCode::mul, NoAttrs{}, {x, factor}, {dtype})[0]};
}

Values decompose_same(Builder&, const Node& node) {
  return {node.in(Unary::x)};
}

Values decompose_delayed_rescale(Builder&, const Node& node) {
  return {node.in(DelayedRescale::x), node.in(DelayedRescale::factor)};
}

Values decompose_cast_in(Builder& b, const Node& node) {
  const auto& attrs = std::get<CastInAttrs>(node.attrs);
  const ValueId x = node.in(Unary::x);
  const Dtype dtype = b.type(x).dtype;
  if (attrs.direction == Direction::backward || dtype == attrs.dtype) return {x};
  if (!is_quantized(attrs.dtype)) {
    const ValueId narrow = b.cast(x, attrs.dtype);
    return {b.cast(narrow, dtype)};
  }
  const ValueId one = b.fill({}, 1);
  const ValueId narrow =
      b.emit_typed(OpCode::quantize, QuantizeAttrs{}, {x, one}, {attrs.dtype})[0];
  return {b.dequantize(narrow, one, dtype)};
}

Values decompose_data_scale(Builder& b, const Node& node) {
  return {node.in(DataScale::x), b.fill({}, 1)};
}

}  // namespace

constinit const OpDef defs::rescale = define(OpCode::rescale, {.infer = infer_rescale,
                                                               .vjp = vjp_rescale,
                                                               .decompose = decompose_rescale,
                                                               .scale = scale::rescale,
                                                               .cost = cost_per_result<1>,
                                                               .error = error::rescale,
                                                               .inplace = kInplaceFirst});
constinit const OpDef defs::set_scale = define(OpCode::set_scale, {.infer = infer_set_scale,
                                                                   .vjp = vjp_directed<ScaleAttrs>,
                                                                   .decompose = decompose_same,
                                                                   .scale = scale::set_scale});
constinit const OpDef defs::rebalance = define(OpCode::rebalance, {.infer = infer_rebalance,
                                                                   .vjp = vjp_directed<ScaleAttrs>,
                                                                   .decompose = decompose_same,
                                                                   .scale = scale::rebalance});
constinit const OpDef defs::dynamic_rescale =
    define(OpCode::dynamic_rescale, {.infer = infer_same<OpCode::dynamic_rescale>,
                                     .vjp = vjp_directed<DynamicRescaleAttrs>,
                                     .decompose = decompose_same,
                                     .scale = scale::dynamic_rescale});
constinit const OpDef defs::delayed_rescale =
    define(OpCode::delayed_rescale, {.infer = infer_delayed_rescale,
                                     .vjp = vjp_delayed_rescale,
                                     .decompose = decompose_delayed_rescale,
                                     .scale = scale::delayed_rescale});
constinit const OpDef defs::custom_scale =
    define(OpCode::custom_scale, {.infer = infer_custom_scale,
                                  .vjp = vjp_custom_scale,
                                  .decompose = decompose_same,
                                  .scale = scale::custom_scale});
constinit const OpDef defs::cast_in = define(OpCode::cast_in, {.infer = infer_same<OpCode::cast_in>,
                                                               .vjp = vjp_directed<CastInAttrs>,
                                                               .decompose = decompose_cast_in,
                                                               .scale = scale::cast_in});
constinit const OpDef defs::data_scale =
    define(OpCode::data_scale, {.infer = infer_data_scale,
                                .vjp = vjp_data_scale,
                                .decompose = decompose_data_scale,
                                .scale = scale::data_scale});
constinit const OpDef defs::power_of_two =
    define(OpCode::power_of_two,
           {.infer = infer_power_of_two, .scale = scale::of_values, .error = error::exact});

constinit const OpDef defs::stop_scaling =
    define(OpCode::stop_scaling, {.infer = infer_same<OpCode::stop_scaling>,
                                  .vjp = vjp_same,
                                  .decompose = decompose_same,
                                  .scale = scale::stop_scaling});
constinit const OpDef defs::store_scaled =
    define(OpCode::store_scaled, {.infer = infer_store_scaled, .cost = cost_per_result<1>});

}  // namespace octet::ops
