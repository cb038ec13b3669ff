// Ops about scales: two that compute (rescale, power_of_two), and those that passes/scalify reads
// and that mean the identity without it. Source: Scalify's primitives (docs/scalify.md).
#include "ir/ops/common.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

template <OpCode C, typename A>
Results infer_same(const Attrs& attrs, Types in) {
  std::get<A>(attrs);
  need_float(op_def(C).name, "x", in[0]);
  return {real(in[0].shape)};
}

Results infer_rescale(const Attrs& attrs, Types in) {
  std::get<NoAttrs>(attrs);
  need_float("rescale", "x", in[0]);
  need_float("rescale", "factor", in[1], {});
  return {real(in[0].shape)};
}

Results infer_power_of_two(const Attrs& attrs, Types in) {
  std::get<NoAttrs>(attrs);
  need_float("power_of_two", "x", in[0], {});
  return {real({})};
}

Results infer_data_scale(const Attrs& attrs, Types in) {
  std::get<NoAttrs>(attrs);
  need_float("data_scale", "x", in[0]);
  return {real(in[0].shape), real({})};
}

Values vjp_rescale(Builder& b, const VjpCall& call) {
  const ValueId dy = call.dresults[0];
  if (dy == kNoValue) return {kNoValue, kNoValue};
  const ValueId x = call.node.in(Rescale::x);
  return {b.emit1(OpCode::rescale, NoAttrs{}, {dy, call.node.in(Rescale::factor)}),
          b.reduce_sum(b.mul(dy, x), iota_axes(b.shape(x).size()))};
}

Values vjp_same(Builder&, const VjpCall& call) {
  return {call.dresults[0]};
}

// What is meant for the gradient happens to it as it comes back.
template <typename A>
Values vjp_directed(Builder& b, const VjpCall& call) {
  auto attrs = std::get<A>(call.node.attrs);
  const ValueId dy = call.dresults[0];
  if (dy == kNoValue || attrs.direction == Direction::forward) return {dy};
  attrs.direction = Direction::forward;
  return {b.emit1(call.node.op, attrs, {dy})};
}

Values vjp_data_scale(Builder&, const VjpCall& call) {
  only_first_gradient(call);
  return {call.dresults[DataScale::data]};
}

Values decompose_rescale(Builder& b, const Node& node) {
  const ValueId x = node.in(Rescale::x);
  const Dtype dtype = b.type(x).dtype,
              wide = b.graph().phase == Phase::logical ? dtype : Dtype::f32;
  const ValueId factor =
      b.emit_typed(OpCode::broadcast, BroadcastAttrs{.shape = b.shape(x), .axes = {}},
                   {node.in(Rescale::factor)}, {&wide, 1})[0];
  return {b.emit_typed(OpCode::mul, NoAttrs{}, {x, factor}, {&dtype, 1})[0]};
}

Values decompose_same(Builder&, const Node& node) {
  return {node.in(Unary::x)};
}

Values decompose_cast_in(Builder& b, const Node& node) {
  const auto& attrs = std::get<CastInAttrs>(node.attrs);
  const ValueId x = node.in(Unary::x);
  if (attrs.direction == Direction::backward) return {x};
  const Dtype dtype = b.type(x).dtype;
  if (!is_quantized(attrs.dtype)) {
    const ValueId narrow = b.emit_typed(OpCode::cast, NoAttrs{}, {x}, {&attrs.dtype, 1})[0];
    return {b.emit_typed(OpCode::cast, NoAttrs{}, {narrow}, {&dtype, 1})[0]};
  }
  const QuantizeAttrs q{.dtype = attrs.dtype};
  const ValueId one = b.fill({}, 1);
  const ValueId narrow = b.emit1(OpCode::quantize, q, {x, one});
  return {b.emit_typed(OpCode::dequantize, q, {narrow, one}, {&dtype, 1})[0]};
}

Values decompose_data_scale(Builder& b, const Node& node) {
  return {node.in(DataScale::x), b.fill({}, 1)};
}

Cost cost_rescale(const Graph& graph, const Node& node) {
  return cost_per_result(graph, node, 1);
}

}  // namespace

constinit const OpDef kRescale = {.code = OpCode::rescale,
                                  .name = "rescale",
                                  .operands = Rescale::operands,
                                  .results = Rescale::results,
                                  .infer = infer_rescale,
                                  .vjp = vjp_rescale,
                                  .decompose = decompose_rescale,
                                  .scale = scale::same,
                                  .plain = 0b10,
                                  .cost = cost_rescale,
                                  .inplace = kInplaceFirst};
constinit const OpDef kSetScale = {.code = OpCode::set_scale,
                                   .name = "set_scale",
                                   .infer = infer_same<OpCode::set_scale, ScaleAttrs>,
                                   .attrs = default_attrs<ScaleAttrs>,
                                   .vjp = vjp_same,
                                   .decompose = decompose_same,
                                   .scale = scale::set_scale};
constinit const OpDef kRebalance = {.code = OpCode::rebalance,
                                    .name = "rebalance",
                                    .infer = infer_same<OpCode::rebalance, ScaleAttrs>,
                                    .attrs = default_attrs<ScaleAttrs>,
                                    .vjp = vjp_same,
                                    .decompose = decompose_same,
                                    .scale = scale::rebalance};
constinit const OpDef kDynamicRescale = {
    .code = OpCode::dynamic_rescale,
    .name = "dynamic_rescale",
    .infer = infer_same<OpCode::dynamic_rescale, DynamicRescaleAttrs>,
    .attrs = default_attrs<DynamicRescaleAttrs>,
    .vjp = vjp_directed<DynamicRescaleAttrs>,
    .decompose = decompose_same,
    .scale = scale::dynamic_rescale};
constinit const OpDef kCastIn = {.code = OpCode::cast_in,
                                 .name = "cast_in",
                                 .infer = infer_same<OpCode::cast_in, CastInAttrs>,
                                 .attrs = default_attrs<CastInAttrs>,
                                 .vjp = vjp_directed<CastInAttrs>,
                                 .decompose = decompose_cast_in,
                                 .scale = scale::same};
constinit const OpDef kDataScale = {.code = OpCode::data_scale,
                                    .name = "data_scale",
                                    .operands = DataScale::operands,
                                    .results = DataScale::results,
                                    .infer = infer_data_scale,
                                    .vjp = vjp_data_scale,
                                    .decompose = decompose_data_scale,
                                    .scale = scale::data_scale,
                                    .statistics = 0b10};
constinit const OpDef kPowerOfTwo = {.code = OpCode::power_of_two,
                                     .name = "power_of_two",
                                     .infer = infer_power_of_two,
                                     .scale = scale::of_values,
                                     .plain = 0b1};

}  // namespace octet::ops
