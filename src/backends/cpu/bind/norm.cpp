// RMSNorm, LayerNorm and their gradients, of an x that is plain or stored in groups.
#include "backends/cpu/norm/norm.h"
#include "backends/cpu/bind/codes.h"
#include "ir/op_def.h"

namespace octet::cpu {
namespace {

int64_t norm_group(const NodeView& view) {
  return group_size(view, op_def(view.node.op).scales[0].operand);
}

// Of a backward's sums.
int64_t sums_floats(const NodeView& view, SlotId weight) {
  static_assert(int{RmsNormGrad::x} == int{LayerNormGrad::x});
  const int n_sums = op_def(view.node.op).is_centred ? 2 : 1;
  return view.has(weight) ? norm_backward_scratch(rows_of(view.in(RmsNormGrad::x)), n_sums) : 0;
}
template <SlotId kWeight>
int64_t sums_bytes(const NodeView& view) {
  return float_bytes(sums_floats(view, kWeight));
}

// Behind the sums: a decoded row for each thread.
int64_t rows_begin(const NodeView& view, SlotId weight) {
  return round_up(sums_floats(view, weight), 16);
}
template <SlotId kWeight>
int64_t grad_bytes(const NodeView& view) {
  return float_bytes(rows_begin(view, kWeight) +
                     norm_groups_scratch(rows_of(view.in(RmsNormGrad::x)), view.target.n_threads));
}

NormGroups groups_at(const NodeTypes& types, const LaunchArgs& args, SlotId scales, int64_t group,
                     int64_t rows_at) {
  return {types.operand(args, scales), group, scratch_of(args) + rows_at};
}

// A statistic that is known is no result.
bool gives_f32(const NodeView& view, SlotId result) {
  return !view.gives(result) || view.out_is(result, {Dtype::f32});
}

// An absent scale and a group of 0 where x is plain.
bool rms_norm_applies(const NodeView& view) {
  return reads_codes(view) && gives_f32(view, octet::RmsNorm::rstd) &&
         view.in_is(octet::RmsNorm::known_rstd, {Dtype::f32});
}
int64_t forward_bytes(const NodeView& view) {
  return float_bytes(
      norm_groups_scratch(rows_of(view.in(octet::RmsNorm::x)), view.target.n_threads));
}

LaunchFn prepare_rms_norm(const NodeView& view, Context& context) {
  return
      [types = NodeTypes(view), a = view.attrs<NormAttrs>(), group = norm_group(view),
       shape = rows_of(view.in(octet::RmsNorm::x)), &pool = context.pool](const LaunchArgs& args) {
        rms_norm({.x = types.operand(args, octet::RmsNorm::x),
                  .weight = types.operand(args, octet::RmsNorm::weight),
                  .y = types.result(args, octet::RmsNorm::y),
                  .rstd = data_out<float>(args, octet::RmsNorm::rstd),
                  .eps = static_cast<float>(a.eps),
                  .groups = groups_at(types, args, octet::RmsNorm::x_scale, group, 0),
                  .known_rstd = data<float>(args, octet::RmsNorm::known_rstd)},
                 shape, pool);
      };
}

bool rms_grad_applies(const NodeView& view) {
  return reads_codes(view) && view.in(RmsNormGrad::rstd).dtype == Dtype::f32;
}
LaunchFn prepare_rms_norm_grad(const NodeView& view, Context& context) {
  return with_amax_sink(view, [types = NodeTypes(view), group = norm_group(view),
                               shape = rows_of(view.in(RmsNormGrad::x)),
                               rows_at = rows_begin(view, RmsNormGrad::weight),
                               &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
    rms_norm_backward({.x = types.operand(args, RmsNormGrad::x),
                       .weight = types.operand(args, RmsNormGrad::weight),
                       .dy = types.operand(args, RmsNormGrad::dy),
                       .residual = types.operand(args, RmsNormGrad::addend),
                       .rstd = data<float>(args, RmsNormGrad::rstd),
                       .dx = types.result(args, RmsNormGrad::dx),
                       .dw = types.result(args, RmsNormGrad::dweight),
                       .scratch = scratch_of(args),
                       .groups = groups_at(types, args, RmsNormGrad::x_scale, group, rows_at),
                       .amax = amax},
                      shape, pool);
  });
}

bool layer_norm_applies(const NodeView& view) {
  using Slots = octet::LayerNorm;
  return reads_codes(view) && gives_f32(view, Slots::mean) && gives_f32(view, Slots::rstd) &&
         view.in_is(Slots::known_mean, {Dtype::f32}) && view.in_is(Slots::known_rstd, {Dtype::f32});
}

LaunchFn prepare_layer_norm(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), a = view.attrs<NormAttrs>(), group = norm_group(view),
          shape = rows_of(view.in(octet::LayerNorm::x)),
          &pool = context.pool](const LaunchArgs& args) {
    layer_norm({.x = types.operand(args, octet::LayerNorm::x),
                .weight = types.operand(args, octet::LayerNorm::weight),
                .bias = types.operand(args, octet::LayerNorm::bias),
                .y = types.result(args, octet::LayerNorm::y),
                .mean = data_out<float>(args, octet::LayerNorm::mean),
                .rstd = data_out<float>(args, octet::LayerNorm::rstd),
                .eps = static_cast<float>(a.eps),
                .groups = groups_at(types, args, octet::LayerNorm::x_scale, group, 0),
                .known_mean = data<float>(args, octet::LayerNorm::known_mean),
                .known_rstd = data<float>(args, octet::LayerNorm::known_rstd)},
               shape, pool);
  };
}

bool layer_grad_applies(const NodeView& view) {
  return reads_codes(view) && view.in(LayerNormGrad::mean).dtype == Dtype::f32 &&
         view.in(LayerNormGrad::rstd).dtype == Dtype::f32;
}
LaunchFn prepare_layer_norm_grad(const NodeView& view, Context& context) {
  return with_amax_sink(view, [types = NodeTypes(view), group = norm_group(view),
                               shape = rows_of(view.in(LayerNormGrad::x)),
                               rows_at = rows_begin(view, LayerNormGrad::weight),
                               &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
    layer_norm_backward({.x = types.operand(args, LayerNormGrad::x),
                         .weight = types.operand(args, LayerNormGrad::weight),
                         .dy = types.operand(args, LayerNormGrad::dy),
                         .residual = types.operand(args, LayerNormGrad::addend),
                         .mean = data<float>(args, LayerNormGrad::mean),
                         .rstd = data<float>(args, LayerNormGrad::rstd),
                         .dx = types.result(args, LayerNormGrad::dx),
                         .dw = types.result(args, LayerNormGrad::dweight),
                         .db = types.result(args, LayerNormGrad::dbias),
                         .scratch = scratch_of(args),
                         .groups = groups_at(types, args, LayerNormGrad::x_scale, group, rows_at),
                         .amax = amax},
                        shape, pool);
  });
}

const Binding kNormBindings[] = {
    {{OpCode::rms_norm, "simd", all_f32_or_bf16}, prepare_rms_norm},
    {{OpCode::rms_norm, "codes", rms_norm_applies, forward_bytes}, prepare_rms_norm},
    {{OpCode::rms_norm_grad, "simd", all_f32_or_bf16, sums_bytes<RmsNormGrad::weight>},
     prepare_rms_norm_grad},
    {{OpCode::rms_norm_grad, "codes", rms_grad_applies, grad_bytes<RmsNormGrad::weight>},
     prepare_rms_norm_grad},
    {{OpCode::layer_norm, "simd", all_f32_or_bf16}, prepare_layer_norm},
    {{OpCode::layer_norm, "codes", layer_norm_applies, forward_bytes}, prepare_layer_norm},
    {{OpCode::layer_norm_grad, "simd", all_f32_or_bf16, sums_bytes<LayerNormGrad::weight>},
     prepare_layer_norm_grad},
    {{OpCode::layer_norm_grad, "codes", layer_grad_applies, grad_bytes<LayerNormGrad::weight>},
     prepare_layer_norm_grad},
};

}  // namespace

std::span<const Binding> norm_bindings() {
  return kNormBindings;
}

}  // namespace octet::cpu
